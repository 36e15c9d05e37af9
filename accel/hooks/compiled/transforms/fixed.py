"""Transforms that draw nothing: their steps are found by running them on an image that is only a size."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.codec.header import Raw, channels_of
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms.draws import Piece, Run, Size
from accel.hooks.recording import tensor_geometry
from accel.lazy.image import LazyImage, LazyPlainImage
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import OPS
from accel.ops.helpers import THREADS
from accel.ops.memory_layout import Layout
from accel.ops.row import KernelOp, TensorOp
from accel.processes import switch
from accel.recipes.recipe import Recipe, Source, Step
from accel.recipes.rows import Form, Slot


class ImageKind(NamedTuple):
    """Everything about an image but its size: a Pillow image of a mode (``cls`` None), or a tensor of a class.

    Attributes:
        interleaved: as for lazy tensors; None: not known beforehand.
        erased: whether values may have been put in or changed at random; steps cannot be moved ahead of that
            (``planning.order``).
    """

    cls: type[LazyTensorBase] | None
    channels: int
    dtype: torch.dtype = torch.uint8
    interleaved: bool | None = True
    erased: bool = False

    def image(self, size: Size, steps: tuple[Step, ...]) -> Any:
        """An image of this kind without any content, with steps recorded."""
        height, width = size
        mode = "RGB" if self.channels == 3 else "L"
        recipe = Recipe(Source(b"", Raw(width, height, mode), "an image", switch.current()), steps)
        if self.cls is None:
            return LazyPlainImage.make(recipe, mode, (width, height), {})
        return self.cls.of((recipe,), (), (self.channels, height, width), self.dtype, Layout(bool(self.interleaved)))


RGB = ImageKind(None, 3)


def moved(kind: ImageKind) -> ImageKind:
    """The kind after pixels were moved: how a tensor then lies in memory is not known beforehand."""
    return kind if kind.cls is None else kind._replace(interleaved=None)


def alike(one: ImageKind, other: ImageKind) -> bool:
    """Whether two kinds differ at most in ``interleaved`` and ``erased``."""
    return one._replace(interleaved=None, erased=False) == other._replace(interleaved=None, erased=False)


class Trace(NamedTuple):
    """An image's kind and size after transforms, and the steps recorded on it."""

    kind: ImageKind
    size: Size
    steps: tuple[Step, ...]


def kind_of(image: Any, before: ImageKind) -> Trace | None:
    """The kind, size and steps of an image; None if it is not lazy any more."""
    if isinstance(image, LazyImage) and image.recipe is not None:
        kind = ImageKind(None, channels_of(image.mode))
        return Trace(kind, (image.height, image.width), image.recipe.steps)
    if isinstance(image, LazyTensorBase) and is_lazy(image) and not image.lazy.after and not image.lazy.lead:
        lazy = image.lazy
        interleaved = lazy.layout.interleaved if lazy.layout.usual and before.interleaved is not None else None
        kind = ImageKind(type(image), lazy.shape[0], lazy.dtype, interleaved, before.erased)
        return Trace(kind, lazy.shape[1:], lazy.recipes[0].steps)
    return None


def recorded(image: Any, before: ImageKind, steps: tuple[Step, ...]) -> Trace:
    """The kind and size of an image that was of the kind ``before``, and the steps recorded after ``steps``.

    Raises:
        Refused: a step was not recorded, or may differ the next time.
    """
    made = kind_of(image, before)
    if made is None:
        raise Refused("a step is not recorded")
    # how a tensor lies in memory is known when the images are planned
    new = tuple([step for step in made.steps[len(steps) :] if step[0] not in (THREADS, "in_memory")])
    ops = [OPS[name] for name, _ in new]
    kernels = any(isinstance(op, KernelOp) for op in ops)
    if made.steps[: len(steps)] != steps or any(op.holds_tensors for op in ops):
        raise Refused("a step depends on more than the image")
    return made._replace(kind=made.kind._replace(erased=before.erased or kernels), steps=new)


class Fixed:
    """Transforms that draw nothing, one after the other.

    Attributes:
        after: the kind of image that they make; None before the first image.
        keeps_size: whether they do the same to images of all sizes, and keep the size.
    """

    most = 0

    def __init__(self, transforms: Sequence[Any], before: ImageKind, most_sizes: int = 1 << 13) -> None:
        """``most_sizes``: the most sizes for which the result is remembered."""
        self._most_sizes = most_sizes
        self._transforms = copy.deepcopy(list(transforms))
        self._before = before
        self.keeps_size = _KEEPING_SIZE.issuperset(map(type, transforms))
        self._known: dict[Size, tuple[Piece, list[int], Size]] = {}
        self._pieces: dict[tuple[Form, ...], Piece] = {}
        self.after: ImageKind | None = None

    def draw(self, run: Run, height: int, width: int) -> Size:
        known = self._known.get((height, width))
        if known is None:
            if len(self._known) >= self._most_sizes:
                self._known.clear()
            known = self._known[height, width] = self.found(run.steps(), (height, width))
        piece, numbers, size = known
        run.pieces.append(piece)
        run.row += numbers
        return size

    def tried(self, size: Size) -> ImageKind:
        """The kind of image that they make, found with an image of this size; raises ``Refused`` as ``found`` does."""
        self.found((), size)
        assert self.after is not None
        return self.after

    def found(self, before: tuple[Step, ...], size: Size) -> tuple[Piece, list[int], Size]:
        image = self._before.image(size, before)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for transform in self._transforms:
                    image = transform(image)
        except Exception as error:
            raise Refused(f"it raises {type(error).__name__}") from None
        kind, size, new = recorded(image, self._before, before)
        if self._before.erased and not all(_is_on_values(name) for name, _ in new):
            raise Refused("pixels are moved after values were changed by chance, or put in")
        if self.after is None:
            self.after = kind
        elif kind != self.after:
            raise Refused("images become of several kinds")
        numbers: list[int] = []
        forms = tuple([_form(step, numbers) for step in new])
        piece = self._pieces.setdefault(forms, Piece(*forms))
        return piece, numbers, size


_KEEPING_SIZE = frozenset(
    {nn.Identity, v2.Identity, v2.RGB, v2.ToImage, v2.ToDtype, v2.ToPureTensor, v1.ToTensor}
    | {getattr(v, name) for v in (v1, v2) for name in ("PILToTensor", "ConvertImageDtype", "Normalize", "Grayscale")}
)

_NUMBERS = {"crop": 4, "resize": 2, "resize_nearest": 2, "nearest": 2, "nearest_exact": 2}


def _is_on_values(name: str) -> bool:
    """Whether a step is recorded in the same way whatever came before it."""
    return isinstance(OPS[name], TensorOp) and not tensor_geometry.may_be_pixels(name)


def _form(step: Step, numbers: list[int]) -> Form:
    name, params = step
    own = _NUMBERS.get(name, 0)
    begin = len(numbers)
    numbers += params[:own]
    return Form(name, (*[Slot(begin + i) for i in range(own)], *params[own:]))
