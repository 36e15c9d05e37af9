"""Programs: what a composition of torchvision's transforms draws and records, found out once for all images.

What does not draw is found out by having it done to an image that is nothing but a size, by the transforms themselves.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode, v2

from accel import switch
from accel.codec.header import Raw
from accel.hooks.compiled import draws, stock
from accel.hooks.compiled.draws import Op, Piece, Run, Size
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.tape import Tape
from accel.lazy.image import LazyImage, LazyPlainImage
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import OPS
from accel.ops.helpers import THREADS
from accel.ops.row import KernelOp
from accel.recipe import Recipe, Source, Step
from accel.rows import Form, Rows, Slot


class Kind(NamedTuple):
    """What an image is, but for its size: a Pillow image of a mode (``cls`` None), or a tensor of a class.

    Attributes:
        interleaved: as lazy tensors have it; None: not known beforehand.
    """

    cls: type[LazyTensorBase] | None
    channels: int
    dtype: torch.dtype = torch.uint8
    interleaved: bool | None = True

    def image(self, size: Size, steps: tuple[Step, ...]) -> Any:
        """An image of this kind with steps recorded, of nothing."""
        height, width = size
        mode = "RGB" if self.channels == 3 else "L"
        recipe = Recipe(Source(b"", Raw(width, height, mode), "an image", switch.current()), steps)
        if self.cls is None:
            return LazyPlainImage.make(recipe, mode, (width, height), {})
        return self.cls.of((recipe,), (), (self.channels, height, width), self.dtype, bool(self.interleaved))


RGB = Kind(None, 3)


def _kind_of(image: Any, before: Kind) -> tuple[Kind, Size, tuple[Step, ...]] | None:
    """The kind and size of an image, and its steps; None where it is not lazy any more."""
    if isinstance(image, LazyImage) and image.recipe is not None:
        return Kind(None, 3 if image.mode == "RGB" else 1), (image.height, image.width), image.recipe.steps
    if isinstance(image, LazyTensorBase) and is_lazy(image) and not image.lazy.after and not image.lazy.lead:
        lazy = image.lazy
        interleaved = None if lazy.view or before.interleaved is None else lazy.interleaved
        return Kind(type(image), lazy.shape[0], lazy.dtype, interleaved), lazy.shape[1:], lazy.recipes[0].steps
    return None


class Fixed:
    """Transforms that draw nothing, one after the other.

    Attributes:
        after: the kind of image that they make.
    """

    most = 0

    def __init__(self, transforms: Sequence[Any], before: Kind) -> None:
        self._transforms = copy.deepcopy(list(transforms))
        self._before = before
        self._known: dict[Size, tuple[Piece, list[int], Size]] = {}
        self._pieces: dict[tuple[Form, ...], Piece] = {}
        self.after: Kind | None = None

    def draw(self, run: Run, height: int, width: int) -> Size:
        known = self._known.get((height, width))
        if known is None:
            recorded = draws.structure(tuple(run.pieces)).steps(run.row)
            if len(self._known) > _SIZES:
                self._known.clear()
            known = self._known[height, width] = self._found(recorded, (height, width))
        piece, numbers, size = known
        run.pieces.append(piece)
        run.row += numbers
        return size

    def _found(self, recorded: tuple[Step, ...], size: Size) -> tuple[Piece, list[int], Size]:
        image = self._before.image(size, recorded)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for transform in self._transforms:
                    image = transform(image)
        except Exception as error:
            raise Refused(f"it raises {type(error).__name__}") from None
        made = _kind_of(image, self._before)
        if made is None:
            raise Refused("a step is not recorded")
        kind, size, steps = made
        new = steps[len(recorded) :]
        if steps[: len(recorded)] != recorded or any(_depends(name) for name, _ in new):
            raise Refused("a step depends on more than the image")
        if self.after is None:
            self.after = kind
        elif kind != self.after:
            raise Refused("images become of several kinds")
        numbers: list[int] = []
        forms = tuple([_form(step, numbers) for step in new])
        piece = self._pieces.setdefault(forms, Piece(*forms))
        return piece, numbers, size


_SIZES = 1 << 14
_NUMBERS = {"crop": 4, "resize": 2, "resize_nearest": 2, "nearest": 2, "nearest_exact": 2}


def _depends(name: str) -> bool:
    return name == THREADS or isinstance(OPS[name], KernelOp)


def _form(step: Step, numbers: list[int]) -> Form:
    name, params = step
    own = _NUMBERS.get(name, 0)
    begin = len(numbers)
    numbers += params[:own]
    return Form(name, (*[Slot(begin + i) for i in range(own)], *params[own:]))


# -- transforms that draw -----------------------------------------------------------------------------------

Attributes = dict[str, Any]
Maker = Callable[[Any, Attributes, Kind], "tuple[list[Op], Kind]"]


def _resized_crop(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    if given["antialias"] is not True or len(given["size"]) != 2:
        raise Refused("RandomResizedCrop has unusual parameters")
    size = given["size"]
    tried = Fixed([_Tried(transform, size)], kind)
    steps = draws.structure((tried._found((), (size[0] + 5, size[1] + 7))[0],)).forms
    if [form.name for form in steps[:-1]] != ["crop"] or kind.dtype != torch.uint8:
        raise Refused("RandomResizedCrop is not recorded as usual")
    resize = Form(steps[-1].name, (*size, *steps[-1].params[2:]))
    logs = given.get("_log_ratio") or draws.log_bounds(given["ratio"])
    op = draws.ResizedCrop(size, given["scale"], given["ratio"], logs, resize, kind.cls is not None)
    return [op], _moved(kind)


class _Tried:
    """A crop that is none of all the image, and then resized."""

    def __init__(self, transform: Any, size: Size) -> None:
        self._transform, self._size = transform, size

    def __call__(self, image: Any) -> Any:
        transform, (height, width) = self._transform, self._size
        if isinstance(transform, v2.Transform):
            return transform.transform(image, {"top": 1, "left": 2, "height": height + 2, "width": width + 3})
        return v1.functional.resized_crop(
            image, 1, 2, height + 2, width + 3, transform.size, transform.interpolation, antialias=transform.antialias
        )


def _moved(kind: Kind) -> Kind:
    """What a kind is when pixels were moved: how a tensor lies in memory then depends on where from."""
    return kind if kind.cls is None else kind._replace(interleaved=None)


def _crop(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    if given["pad_if_needed"]:
        raise Refused("RandomCrop pads if needed")
    ops: list[Op] = []
    if given["padding"] is not None:
        is_v2 = isinstance(transform, v2.Transform)
        padding = given["padding"]
        if is_v2:  # that of the class is left, right, top, bottom
            left, right, top, bottom = padding
            padding = left, top, right, bottom
        if not is_v2 or any(padding):
            listed = list(padding) if isinstance(padding, tuple) else padding
            pad = (v2 if is_v2 else v1).Pad(listed, transform.fill, transform.padding_mode)
            ops.append(Fixed([pad], kind))
    return [*ops, draws.Crop(given["size"], both=not isinstance(transform, v2.Transform))], _moved(kind)


def _flip(step: str) -> Maker:
    def make(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
        return [draws.Flip(given["p"], step)], kind

    return make


def _erasing(transform: Any, given: Attributes, kind: Kind) -> tuple[list[Op], Kind]:
    value = given["value"]
    if type(value) in (int, float):
        value = (float(value),)
    if kind.cls is None or type(value) is not tuple or len(value) not in (1, kind.channels) or given["inplace"]:
        raise Refused("RandomErasing has unusual parameters")
    logs = given.get("_log_ratio") or draws.log_bounds(given["ratio"])
    return [draws.Erasing(given["p"], given["scale"], logs, tuple(map(float, value)))], kind


_DRAWING: dict[type, tuple[tuple[str, ...], Maker]] = {}
_FIXED: dict[type, tuple[str, ...]] = {}
for _version in (v1, v2):
    _own = ("_log_ratio",) if _version is v2 else ()
    _fill = ("_fill",) if _version is v2 else ()
    _DRAWING |= {
        _version.RandomResizedCrop: (("size", "scale", "ratio", "interpolation", "antialias", *_own), _resized_crop),
        _version.RandomCrop: (("size", "padding", "pad_if_needed", "fill", "padding_mode"), _crop),
        _version.RandomHorizontalFlip: (("p",), _flip("hflip")),
        _version.RandomVerticalFlip: (("p",), _flip("vflip")),
        _version.RandomErasing: (("p", "scale", "ratio", "value", "inplace", *_own), _erasing),
    }
    _FIXED |= {
        _version.Resize: ("size", "interpolation", "max_size", "antialias"),
        _version.CenterCrop: ("size",),
        _version.Pad: ("padding", "fill", "padding_mode"),
        _version.Grayscale: ("num_output_channels",),
        _version.PILToTensor: (),
        _version.Normalize: ("mean", "std", "inplace"),
    }
_FIXED |= {
    v1.ToTensor: (),
    v1.ConvertImageDtype: ("dtype",),
    v2.ConvertImageDtype: ("dtype",),
    v2.ToImage: (),
    v2.ToDtype: ("dtype", "scale"),
    v2.ToPureTensor: (),
    v2.Identity: (),
}
NAMES = {**_FIXED, **{cls: names for cls, (names, _) in _DRAWING.items()}}
"""The attributes of each class that its work depends on."""


class Program:
    """What a composition of transforms draws and records.

    Attributes:
        trusted: whether it did what the transforms do; None: not tried yet. most: so many draws an image may take.
    """

    def __init__(self, transforms: Sequence[Any], given: Sequence[Attributes]) -> None:
        self.trusted: bool | None = None
        self.ops: list[Op] = []
        self._usual = 8
        self._transforms, self._given = copy.deepcopy(list(transforms)), given
        self.kind: Kind | None = None

    def _build(self, size: Size) -> None:
        """Make it; ``size``: of an image to try it on."""
        kind, ops, fixed = RGB, [], []  # type: ignore[var-annotated]

        def found(kind: Kind) -> Kind:
            if not fixed:
                return kind
            ops.append(op := Fixed(fixed, kind))
            fixed.clear()
            op._found((), size)
            assert op.after is not None
            return op.after

        for transform, given in zip(self._transforms, self._given, strict=True):
            drawing = _DRAWING.get(type(transform))
            if drawing is None:
                fixed.append(transform)
            else:
                kind = found(kind)
                made, kind = drawing[1](transform, given, kind)
                ops += made
        self.kind = found(kind)
        self.ops = ops
        if self.kind.cls is None:
            raise Refused("it makes no tensors")

    def run(self, sizes: Sequence[Size], grey: Sequence[bool], state: torch.Tensor) -> tuple[list[Run], list[Size], Tape]:
        """Draw for images of these sizes, from a state of torch's generator on.

        Raises:
            Refused: that is left to torchvision.
        """
        if not self.ops:
            self._build(sizes[0])
        most = sum(op.most for op in self.ops)
        try:
            return self._run(sizes, grey, Tape(state, len(sizes) * min(self._usual, most) + 1))
        except IndexError:
            return self._run(sizes, grey, Tape(state, len(sizes) * most + 1))

    def _run(self, sizes: Sequence[Size], grey: Sequence[bool], tape: Tape) -> tuple[list[Run], list[Size], Tape]:
        runs, made = [], []
        ops = [op.draw for op in self.ops]
        for (height, width), is_grey in zip(sizes, grey, strict=True):
            run = Run(tape)
            if is_grey:
                run.pieces.append(_TO_RGB)
            for draw in ops:
                height, width = draw(run, height, width)
            runs.append(run)
            made.append((height, width))
        return runs, made, tape


_TO_RGB = Piece(Form("convert", ("RGB",)))


def recipes(sources: Sequence[Source], runs: Sequence[Run]) -> Rows | tuple[Recipe, ...]:
    """What was drawn, as rows where the images have one structure."""
    first = tuple(runs[0].pieces)
    if all([tuple(run.pieces) == first for run in runs]):
        return Rows(sources, draws.structure(first), np.array([run.row for run in runs], np.int64).reshape(len(runs), -1))
    return tuple(
        [
            Recipe(source, draws.structure(tuple(run.pieces)).steps(run.row))
            for source, run in zip(sources, runs, strict=True)
        ]
    )


def compiled(transform: Any) -> Program:
    """The program of a transform as it is now.

    Raises:
        Refused: it has none.
    """
    stock.surroundings()
    key = stock.leaves(transform, NAMES)
    program = _programs.get(key)
    if program is None:
        if len(_programs) > _MOST:
            _programs.clear()
        program = _programs[key] = Program(_parts(transform), [dict(values) for _, values, _, _ in key])
    if program.trusted is False:
        raise Refused("it did not record what torchvision's transforms do")
    return program


def _parts(transform: Any) -> list[Any]:
    if type(transform) in (v1.Compose, v2.Compose):
        return [part for each in transform.transforms for part in _parts(each)]
    if type(transform) is torch.nn.Sequential:
        return [part for each in transform for part in _parts(each)]
    return [transform]


_MOST = 64
_programs: dict[Any, Program] = {}
