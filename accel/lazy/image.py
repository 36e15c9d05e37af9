"""LazyImage: a Pillow image whose pixels are not computed yet.

Steps of ops in accel's table are recorded; anything else that touches the pixels computes them at once, and from then
on the image is an ordinary one (``accel.lazy.image_base``).
"""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from accel.backend import backend_of
from accel.codec.header import Raw, channels_of
from accel.errors import DecodeError
from accel.lazy import pillow_methods
from accel.lazy.image_base import LazyImageBase, StandsFor, send
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import LEFT, OPS
from accel.ops.index import PadMode
from accel.ops.memory_layout import INTERLEAVED, PLANAR, Layout
from accel.processes import switch
from accel.recipes.recipe import Recipe, Source, Step
from accel.runtime import compute, picture_memory
from accel.system import counters, log

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T", bound=LazyTensorBase)


def _by_steps(steps_of: Any) -> Any:
    """Pillow's method of the same name, recorded as the steps that ``steps_of`` returns, if any."""
    name = steps_of.__name__

    @wraps(getattr(Image.Image, name))
    def method(self: LazyImage, *args: Any, **kwargs: Any) -> Image.Image:
        steps = steps_of(self, *args, **kwargs) if self._im is None and self._recipe is not None else None
        if not steps or any(step in LEFT for step, _ in steps):
            return self.copy() if steps == () else getattr(super(LazyImage, self), name)(*args, **kwargs)
        for step, params in steps:
            self = self.then(step, params)
        return self

    return method


class LazyImage(LazyImageBase):
    """A ``PIL.Image.Image`` of mode "RGB" or "L" whose pixels are computed when they are first used.

    Its ``info`` is that of the file it was made from, as Pillow passes it on. ``Image.open`` returns an
    ``accel.lazy.jpeg_file.LazyJpegFile``, all others are ``LazyPlainImage``s.
    """

    @classmethod
    def make(cls, recipe: Recipe, mode: str, size: tuple[int, int], info: dict[Any, Any] | None = None) -> Self:
        """An image of a recipe's pixels; ``info``: its ``info`` as Pillow passes it on, None: the file's."""
        image = cls.__new__(cls)
        fields = image.__dict__
        fields["_recipe"] = recipe
        fields["_mode"] = mode
        fields["_size"] = size
        fields["_info"] = info
        return image

    @property
    def recipe(self) -> Recipe | None:
        """The recipe; None once the pixels are computed."""
        return self._recipe if self._im is None else None

    @property
    def is_transparent(self) -> bool:
        """Whether its ``info`` names a transparent colour; that of a file with a lazy image never does."""
        return (self._info or {}).get("transparency") is not None

    @staticmethod
    def load_rgb(source: Source) -> LazyImage:
        """The image that ``Image.open(...).convert("RGB")`` returns."""
        header = source.header
        image = LazyPlainImage.make(Recipe(source), header.mode, (header.width, header.height))
        return image if header.mode == "RGB" else image.then("convert", ("RGB",), "RGB")

    def then(self, name: str, params: tuple[Any, ...], mode: str | None = None) -> LazyImage:
        """This image with one more step recorded; an ordinary image if the op is left to torchvision."""
        if name in LEFT:
            return self._left(name, params)  # type: ignore[no-any-return]
        source, steps = self.used()
        op = OPS[name]
        height, width = op.size((self._size[1], self._size[0]), params)
        info = self._copied_info()
        if op.renews is not None and op.renews(params):
            info = {}
        return LazyPlainImage.make(Recipe(source, (*steps, (name, params))), mode or self._mode, (width, height), info)

    def _left(self, name: str, params: tuple[Any, ...]) -> Any:
        """The result of an op that is left to torchvision; the pixels are computed first."""
        _ = self.im
        with switch.image_backend("torchvision"):
            return OPS[name].reference(self, params)

    def _copied_info(self) -> dict[Any, Any] | None:
        """A copy of ``info`` for an image made from this one; None: the file's."""
        return self._copy_info() if self._info else None if self._info is None else {}

    def used(self) -> Recipe:
        """The recipe, to make something else of this image."""
        self._loaded = True
        if self._parent:
            self.used_again()
        self._parent = True
        assert self._recipe is not None
        return self._recipe

    def used_again(self) -> None:
        """Prepare for a further image to be made from this one.

        Of a file, the whole picture will then be decoded and kept. An image with steps that was computed twice already
        is computed once more, alone, and keeps its pixels from then on, unless it would be computed on a device.
        """
        recipe = self._recipe
        assert recipe is not None
        source, steps = recipe.source, recipe.steps
        if not steps or steps == _COLOUR:
            source.shared = True
        elif source.uses > 1 and not backend_of(source.selection).devices:
            width, height = self._size
            if picture_memory.values_fit(3 * width * height):
                self.keep_pixels()

    def keep_pixels(self) -> None:
        """Compute the pixels and make them the source of this image; an image that cannot be decoded stays as it is."""
        recipe = self._recipe
        assert recipe is not None
        _ = self.info  # of the file
        with suppress(DecodeError), log.flushing:
            pixels = compute.pixels(recipe).tobytes()
            source = recipe.source
            self._recipe = Recipe(Source(pixels, Raw(*self._size, mode=self._mode), source.name, source.selection))
            counters.count(counters.KEPT)

    def as_tensor(self, cls: type[T], step: Step, dtype: torch.dtype, layout: Layout = PLANAR) -> T:
        """This image as a lazy tensor of a class and of ``dtype``, by this step."""
        if step[0] in LEFT:
            return self._left(*step).as_subclass(cls.becomes)  # type: ignore[no-any-return]
        width, height = self._size
        shape = (channels_of(self._mode), height, width)
        source, steps = self.used()
        if source.origin is not None and not steps:  # a tensor that was made an image, and nothing done to it
            source, steps = source.origin
        return cls.of((Recipe(source, (*steps, step)),), (), shape, dtype, layout)

    def as_uint8_tensor(self, cls: type[T]) -> T:
        """This image as a uint8 tensor, which torchvision strides [height, width, channel]."""
        return self.as_tensor(cls, ("pil_to_tensor", ()), torch.uint8, INTERLEAVED)

    # -- Pillow methods that are recorded, as torchvision and users call them -------------------------------

    def copy(self) -> Image.Image:
        recipe = self.recipe  # read once: another thread may be computing the pixels
        if recipe is None:
            return super().copy()
        self._loaded = True
        if self._parent:
            self.used_again()
            recipe = self._recipe or recipe
        self._parent = True
        info = self._copied_info()
        return LazyPlainImage.make(recipe, self._mode, self._size, info)

    def convert(self, mode: str | None = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Image.Image:
        if self.recipe is not None and not matrix:
            if not mode or mode == self._mode:
                return self.copy()
            step = _CONVERSIONS.get(mode)
            if step is not None and "transparency" not in (self._info or ()):  # a file's own info never has it
                return self.then(*step, mode)
        return super().convert(mode, matrix, *args, **kwargs)

    def crop(self, box: Any = None) -> Image.Image:
        if self._im is not None or self._recipe is None:
            return super().crop(box)
        if box is None:
            return self.copy()
        if not isinstance(box, (tuple, list)) or len(box) != 4:
            return super().crop(box)  # type: ignore[arg-type]
        left, top, right, bottom = edges = [edge if type(edge) is int else int(round(edge)) for edge in box]
        if edges == [0, 0, *self._size]:
            return self.copy()
        width, height = right - left, bottom - top
        limit = Image.MAX_IMAGE_PIXELS
        if width < 1 or height < 1 or (limit is not None and width * height > limit):
            return super().crop((left, top, right, bottom))
        return self.then("crop", (top, left, height, width))

    def crop_and_resize(
        self, top: Any, left: Any, height: Any, width: Any, size: Any, resample: int
    ) -> Image.Image | None:
        """torchvision's ``resized_crop``; None if ``size`` is not two numbers."""
        if not isinstance(size, (list, tuple)) or len(size) != 2:
            return None
        cropped = self.crop((left, top, left + width, top + height))
        if cropped.size == (size[1], size[0]):
            return cropped
        return cropped.resize((size[1], size[0]), resample)

    def thumbnail(self, size: Any, resample: Any = Image.Resampling.BICUBIC, reducing_gap: float | None = 2.0) -> None:
        drafts = reducing_gap is not None and isinstance(self, JpegImageFile) and not self._loaded
        self._compute_for_access()
        if self._im is not None or self._recipe is None or drafts:
            return super().thumbnail(size, resample, reducing_gap)
        resized = pillow_methods.Thumbnail(self._size, size, resample, reducing_gap).resized
        if resized is None:
            return None
        args, kwargs = resized
        image = self.resize(*args, **kwargs)
        recipe = image.recipe if isinstance(image, LazyImage) else None
        self.__dict__.update(_size=image.size, _loaded=True, _parent=False)
        self.readonly = 0
        if recipe is None:
            self.im = image.im
        else:
            self._recipe = recipe
        return None

    resize, reduce, transpose = map(_by_steps, (pillow_methods.resize, pillow_methods.reduce, pillow_methods.transpose))
    transform, point, filter = map(_by_steps, (pillow_methods.transform, pillow_methods.point, pillow_methods.filter))

    def pad(self, padding: tuple[int, int, int, int], mode: PadMode, fill: Any) -> LazyImage:
        """Record a pad by (left, top, right, bottom) pixels; ``fill``: any colour that Pillow takes, or None."""
        colour = pillow_methods.pixel(self._mode, fill) if mode == "constant" else None
        return self.then("pad", (*padding, mode, colour))


class LazyPlainImage(LazyImage, metaclass=StandsFor):
    """A lazy image that stands for a plain ``Image.Image``, not for one of a file format's class."""


ForkingPickler.register(LazyPlainImage, send)


_CONVERSIONS: dict[str, Step] = {"RGB": ("convert", ("RGB",)), "L": ("to_grayscale", (1,))}
_COLOUR = (_CONVERSIONS["RGB"],)
