"""Messages to samples: everything is checked, then recipes become lazy images and tensors of the backend in force."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import default_collate
from torchvision import tv_tensors

from accel.codec.header import Header, Raw, claim
from accel.errors import AccelError, DecodeError, WireError, require
from accel.hooks import claimed_files
from accel.hooks.tv_tensors import LazyTVImage
from accel.lazy.image import LazyPlainImage
from accel.lazy.jpeg_file import LazyJpegFile
from accel.lazy.tensor import LazyTensor
from accel.ops import OPS
from accel.ops.helpers import THREADS
from accel.ops.memory_layout import Layout
from accel.ops.row import Picture
from accel.processes import switch
from accel.recipes.recipe import Recipe, Source, Step
from accel.recipes.rows import Rows
from accel.system import counters
from accel.system.replaced import replaced
from accel.system.version import __version__
from accel.wire import frame, steps
from accel.wire.frame import Array, at, taken
from accel.wire.leaves import Decoder
from accel.wire.steps import Subject, Values, are_ints
from accel.wire.writing import PICTURES, TV

_NAMES = {"accel", "arrays", "recipes", "sample", "sources", "steps"}
_LONGEST_NAME = 1024
_KINDS = {"lazy tensor": LazyTensor, "lazy tv image": LazyTVImage}
_TV: dict[Any, Any] = {f"tv {each.__name__}": each for each in TV}
_WRONG = (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError, RecursionError)


def loads(message: Any) -> Any:
    """The sample or batch of a message (bytes, or anything with a buffer of them).

    Recipes become lazy images and tensors of the backend in force (of "cpu" under "torchvision"), which plans them.
    Everything is copied, so the message's memory may be used again.

    Raises:
        WireError: it is no message, of another version, cut, damaged, or says what cannot be; the text names the image.
        DecodeError: an image's file is no picture of the size that the message says, and ``on_error`` is "raise".
    """
    header, arrays = frame.opened(message)
    try:
        with _backend() if header.get("sources") else nullcontext():
            return _Reader(header, arrays).sample
    except WireError as error:
        if header.get("accel") == __version__:
            raise
        raise WireError(f"{error} (accel {header.get('accel')!r:.20} made it, and this is {__version__})") from error


def collate(messages: Sequence[Any] | Mapping[str, Sequence[Any]]) -> Any:
    """The batch of several messages, each of one sample: ``torch.utils.data.default_collate`` of the samples.

    They are a list, or, as engines give them, a dictionary with one column of messages.

    Lazy tensors of one shape and dtype become one lazy batch, whatever their steps and whoever sent them.

    Raises:
        WireError, DecodeError: as ``loads`` does; the text names the message.
        TypeError, RuntimeError: what ``default_collate`` raises.
    """
    if isinstance(messages, Mapping):
        (messages,) = messages.values()
    messages = list(messages)
    with _backend():
        return default_collate([_loaded(message, place, len(messages)) for place, message in enumerate(messages)])


def _loaded(message: Any, place: int, count: int) -> Any:
    try:
        return loads(message)
    except AccelError as error:
        raise type(error)(f"{error} (message {place} of {count})") from error


def _backend() -> AbstractContextManager[None]:
    return nullcontext() if switch.active() is not None else switch.image_backend("cpu", cache=None)


class _Reader(Decoder):
    """Makes the parts of a message: sources, steps, recipes of these, and the sample.

    Attributes:
        sample: what was sent.
    """

    def __init__(self, header: dict[str, Any], arrays: Sequence[Array]) -> None:
        self._selection = switch.current()
        super().__init__(dict(enumerate(arrays)))
        self._params = Decoder(self.arrays)
        self._black = np.zeros(0, np.uint8)
        listed: list[Any] = [header.get(name) for name in ("steps", "sources", "recipes")]
        if header.keys() != _NAMES or not all(type(each) is list for each in listed):
            raise WireError("a message cannot be read: it lists other things")
        self._steps: dict[int, Step] = dict(enumerate(_each("step", self._step, listed[0])))
        self._sources: list[Source] = _each("file", self._source, listed[1])
        self._recipes: dict[int, tuple[Recipe, Subject]] = dict(enumerate(_each("image", self._recipe, listed[2])))
        (self.sample,) = _each("sample", self.value, [[header["sample"]]])

    def _step(self, name: Any, *params: Any) -> Step:
        if name == THREADS and are_ints(*params) and max(params, default=0) > (most := os.cpu_count() or 1):
            counters.fallback("images were recorded on more threads than there are processors: sums may differ")
            params = (most,) * len(params)
        return name, tuple(map(self._params.value, params))

    def _source(self, name: Any, number: Any, kind: Any, *size: Any) -> Source:
        require(type(name) is str, "it has no name")
        array = taken(self.arrays, number)
        name = (name if name.isprintable() else ascii(name))[:_LONGEST_NAME] or "an image of a message"
        height, width, channels = size = array.shape if kind == "pixels" else size
        require({int} == {*map(type, size)} and channels in (1, 3) and array.dtype == "U8", "it is no picture")
        steps.check_size(height, width)
        raw, content = Raw(width, height, "RGB" if channels == 3 else "L"), array.content.tobytes()
        if kind == "pixels":
            return Source(content, raw, name, self._selection)
        require(kind in ("pillow", "torchvision"), f"it is of kind {kind!r}")
        header = claim(content)
        if header is None or (header.height, header.width, header.channels) != size:
            fault = "it is no JPEG file of the size that the message says"
        elif not (claimed_files.claimed(header, self._selection) and (kind == "pillow" or header.ordinary)):
            fault = "the file is cut"
        else:
            return Source(content, header._replace(reference=kind), name, self._selection)
        if self._selection.options.on_error == "raise":
            raise DecodeError(f"{name}: {fault}")
        replaced(name, fault)
        if len(self._black) < (size_of := height * width * channels):  # all have the same memory
            self._black = np.zeros(size_of, np.uint8)
        return Source(self._black[:size_of].data.toreadonly(), raw, name, self._selection)

    def _recipe(self, source: Any, listed: Any) -> tuple[Recipe, Subject]:
        recipe = Recipe(at(self._sources, source), tuple(map(self._recorded, listed)))
        header = recipe.source.header
        return recipe, steps.after(Picture((header.channels, header.height, header.width)), recipe.steps)

    def _recorded(self, place: Any) -> Step:
        """The step at a place, which is taken if it has arrays."""
        step = taken(self._steps, place)
        if {bytes, torch.Tensor}.isdisjoint(map(type, step[1])):
            self._steps[place] = step
        return step

    # -- what a sample has -----------------------------------------------------------------------------------

    def leaf(self, name: Any, *rest: Any) -> Any:
        if name == "image":
            return self._image(*rest)
        if name in _KINDS:
            return self._lazy_tensor(_KINDS[name], *rest)
        if name == "picture":
            return self._picture(*rest)
        require(name == "boxes" or (name in _TV and len(rest) == 1), f"there is no {name!r} in samples")
        tensor = self.value(rest[0])
        require(type(tensor) is torch.Tensor, f"{name!r} is of no tensor")
        return self._boxes(tensor, *rest[1:]) if name == "boxes" else _TV[name](tensor)

    def _boxes(self, tensor: torch.Tensor, form: Any, height: Any, width: Any, clamped: Any = "soft") -> Any:
        known = form in tv_tensors.BoundingBoxFormat.__members__ and clamped in ("soft", "hard", None)
        fits = tensor.ndim <= 2 and tensor.shape[-1:] == ({"XYWHR": 5, "CXCYWHR": 5, "XYXYXYXY": 8}.get(form, 4),)
        require(known and fits and type(height) is int is type(width), "they are no boxes")
        more = {} if clamped == "soft" else {"clamping_mode": clamped}
        return tv_tensors.BoundingBoxes(tensor, format=form, canvas_size=(height, width), **more)

    def _image(self, number: Any) -> Image.Image:
        recipe, made = taken(self._recipes, number)
        require(isinstance(made, Picture), "it is a tensor")
        if not recipe.steps and isinstance(recipe.source.header, Header):
            return LazyJpegFile.open(recipe.source, "")
        channels, height, width = made.shape
        renewed = any((renews := OPS[name].renews) is not None and renews(params) for name, params in recipe.steps)
        return LazyPlainImage.make(recipe, "RGB" if channels == 3 else "L", (width, height), {} if renewed else None)

    def _picture(self, mode: Any, number: Any) -> Image.Image:
        array = taken(self.arrays, number)
        require(PICTURES.get(mode) == array.dtype, f"it is of mode {mode!r}")
        height, width, bands = array.shape
        require(bands == Image.getmodebands(mode), "it has other channels")
        steps.check_size(height, width)
        return Image.frombytes(mode, (width, height), array.content.tobytes())

    def _lazy_tensor(self, kind: Any, lead: Any, first: Any, lies: Any) -> torch.Tensor:
        fits = (
            type(lead) is list
            and len(lead) <= frame.MOST_AXES - 3
            and are_ints(*lead, least=1, most=len(self._recipes))
        )
        require(fits and type(first) is int, "it has no shape")
        require(prod(lead) <= len(self._recipes), "it has no images")
        found = [taken(self._recipes, place) for place in range(first, first + prod(lead))]
        recipes, (made, *others) = tuple([recipe for recipe, _ in found]), {each for _, each in found}
        require(not others and isinstance(made, Values), "its images are not alike, or no tensors")
        fields: Any = [tuple(each) if type(each) is list else each for each in lies]
        layout = Layout(*fields)
        steps.check_layout(layout, made.shape)
        rows = Rows.of(recipes) if len(recipes) > 1 else None
        tensor: torch.Tensor = kind.of(rows or recipes, tuple(lead), *made, layout)
        return tensor


def _each(what: str, make: Callable[..., Any], listed: Sequence[Any]) -> list[Any]:
    """What a function makes of the listed arguments; errors name the place."""
    made = []
    for place, each in enumerate(listed):
        try:
            made.append(make(*each))
        except (AccelError, *_WRONG) as error:
            kind = type(error) if isinstance(error, AccelError) else WireError
            raise kind(f"a message cannot be read: {what} {place}: {error!s:.2000}") from error
    return made
