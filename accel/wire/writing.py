"""Samples to messages: lazy images as files and steps, everything else as arrays and JSON."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors

from accel.codec.header import Header, Raw
from accel.errors import require
from accel.hooks.tv_tensors import LazyTVImage
from accel.lazy.image import LazyImage
from accel.lazy.tensor_base import LazyTensorBase, pending_state
from accel.ops import shape_after
from accel.ops.row import Picture, Shape
from accel.planning import order
from accel.recipes.recipe import Recipe, Source, Step
from accel.runtime import compute
from accel.system import counters
from accel.wire import frame, steps
from accel.wire.frame import Array
from accel.wire.leaves import Encoder

PICTURES = {"L": "U8", "RGB": "U8", "RGBA": "U8", "LA": "U8", "CMYK": "U8", "YCbCr": "U8", "I": "I32", "F": "F32"}
"""The modes of eager Pillow images that are sent, and the dtypes of their pixels."""

TV = (tv_tensors.Image, tv_tensors.Video, tv_tensors.Mask)


def dumps(sample: Any, *, names: bool = False, send: Literal["recipes", "auto"] = "recipes") -> bytes:
    """The message of a sample or a batch: any nesting of lists, tuples and dictionaries with images, tensors, NumPy
    arrays, numbers, strings and bytes in it.

    Lazy images and lazy tensors are sent as recipes: their files, each once, and the steps recorded on them. If they
    have steps that cannot be sent (counted in ``accel.stats()``), they are computed and sent as values, as eager images
    and plain tensors are. The same content makes the same bytes.

    Args:
        names: whether the files' names are sent, which appear in the receiver's errors.
        send: ``"recipes"``; or ``"auto"``: an image whose pixels are fewer bytes than its file, once its steps on
            pixels are done, is computed up to there, and the rest of its steps is sent.

    Raises:
        TypeError, ValueError: the sample has a value in it that is not sent.
        DecodeError: an image had to be computed, or its file read, and cannot be.
    """
    if send not in ("recipes", "auto"):
        raise ValueError(f"send must be 'recipes' or 'auto', got {send!r}")
    writer = _Writer(names, smallest=send == "auto")
    tree = writer.value(sample)
    header = {"sources": writer.sources, "steps": writer.steps, "recipes": writer.recipes, "sample": tree}
    return frame.sealed(header, writer.arrays)


class _Writer(Encoder):
    """Collects what a message's header lists."""

    def __init__(self, names: bool, smallest: bool) -> None:
        super().__init__()
        self.sources: list[Any] = []
        self.steps: list[Any] = []
        self.recipes: list[Any] = []
        self._names, self._smallest = names, smallest
        self._places: dict[int | str, int] = {}  # of sources by their ids, and of steps by their JSON
        self._sent: list[Source] = []  # which keeps the ids theirs

    def leaf(self, value: Any) -> Any:
        if isinstance(value, LazyTensorBase):
            return self._lazy_tensor(value)
        if isinstance(value, Image.Image):
            return self._image(value)
        if isinstance(value, tv_tensors.TVTensor):
            return self._tv_tensor(value)
        return None

    def _image(self, image: Image.Image) -> Any:
        recipe = image.recipe if isinstance(image, LazyImage) else None
        if recipe is not None:
            if (reason := _refused([recipe])) is None:
                return ["image", self._recipe(recipe)]
            counters.fallback(f"a lazy image was computed to be sent: {reason}")
        if image.mode not in PICTURES:
            raise TypeError(f"accel.wire sends no images of mode {image.mode!r}")
        steps.check_size(image.height, image.width)
        bands, dtype = len(image.getbands()), PICTURES[image.mode]
        content = np.frombuffer(image.tobytes(), np.uint8)
        return ["picture", image.mode, self.array(Array(dtype, (image.height, image.width, bands), content))]

    def _lazy_tensor(self, tensor: LazyTensorBase) -> Any:
        lazy = pending_state(tensor)
        reason = "it has values" if lazy is None else None if lazy.recordable else "it was computed"
        if lazy is None or (reason := reason or _refused(lazy.recipes, (lazy.shape, lazy.dtype))):
            if lazy is not None:
                counters.fallback(f"a lazy tensor was computed to be sent: {reason}")
            return self.value(LazyTensorBase.materialize(tensor))
        first = len(self.recipes)
        for recipe in lazy.recipes:
            self._recipe(recipe)
        kind = "lazy tv image" if isinstance(tensor, LazyTVImage) else "lazy tensor"
        return [kind, list(lazy.lead), first, list(lazy.layout)]

    def _tv_tensor(self, value: tv_tensors.TVTensor) -> Any:
        plain = self.value(value.as_subclass(torch.Tensor))
        if type(value) is tv_tensors.BoundingBoxes:
            clamped = getattr(value, "clamping_mode", "soft")  # which older versions lack
            canvas = map(operator.index, value.canvas_size)
            return ["boxes", plain, value.format.name, *canvas, *([] if clamped == "soft" else [clamped])]
        return [f"tv {type(value).__name__}", plain] if type(value) in TV else None

    def _recipe(self, recipe: Recipe) -> int:
        """The number of a recipe."""
        source, recorded = smallest(recipe) if self._smallest else recipe
        self.recipes.append([self._source(source), [self._step(each) for each in recorded]])
        return len(self.recipes) - 1

    def _source(self, source: Source) -> int:
        if (place := self._places.get(id(source))) is None:
            place = self._places[id(source)] = len(self.sources)
            self._sent.append(source)
            header, content = source.header, np.frombuffer(source.data, np.uint8)
            size = header.height, header.width, header.channels
            is_file = isinstance(header, Header)
            number = self.array(Array("U8", (len(content),) if is_file else size, content))
            kind = (header.reference, *size) if isinstance(header, Header) else ("pixels",)
            self.sources.append([source.name if self._names else "", number, *kind])
        return place

    def _step(self, step: Step) -> int:
        """The number of a step; one that several images have is sent once, unless it has arrays."""
        before = len(self.arrays)
        encoded = [step[0], *map(self.value, step[1])]
        known = self._places if len(self.arrays) == before else {}
        place = known.setdefault(repr(encoded), len(self.steps))
        if place == len(self.steps):
            self.steps.append(encoded)
        return place


def smallest(recipe: Recipe) -> Recipe:
    """The recipe, or the same of pixels, its steps on pixels done, if they are fewer bytes than the file."""
    source, recorded = recipe
    on_pixels, *others = order.parts(recorded)
    header = source.header
    channels, height, width = shape_after((header.channels, header.height, header.width), *on_pixels)
    if channels * height * width >= len(source.data):
        return recipe
    raw = Raw(width, height, "RGB" if channels == 3 else "L")
    pixels = compute.pixels(Recipe(source, on_pixels)).tobytes()
    return Recipe(Source(pixels, raw, source.name, source.selection), (*others[0], *others[1]))


def _refused(recipes: Sequence[Recipe], made: tuple[Shape, torch.dtype] | None = None) -> str | None:
    """Why recipes cannot be sent as such; None: they can. ``made``: the shape and dtype of a tensor's images."""
    try:
        for source, recorded in recipes:
            require(source.origin is None, "it was made of a tensor that is lazy itself")
            header = source.header
            found = steps.after(Picture((header.channels, header.height, header.width)), recorded)
            require(made in (None, found), "it has steps on a batch, or of another dtype")
    except ValueError as error:
        return str(error)
    return None
