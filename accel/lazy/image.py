"""LazyImage: a Pillow image whose pixels are late.

What accel's table knows is recorded; whatever else touches the pixels has them computed there and then, and
from then on the image is an ordinary one. Recording stops there too: an image that has pixels may have been
painted on.
"""

from __future__ import annotations

import copyreg
import operator
from abc import ABCMeta
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile, jpeg_factory

from accel.backend import backend_of
from accel.codec.header import Header, Raw
from accel.errors import DecodeError
from accel.lazy import pillow_args, resizing
from accel.ops import OPS
from accel.ops.index import PadMode
from accel.planning import lut as levels
from accel.recipe import Recipe, Source, Step
from accel.runtime import kept, materialize
from accel.system import counters, log
from accel.system.caller import caller

if TYPE_CHECKING:
    from typing_extensions import Self


class LazyImage(Image.Image):
    """A ``PIL.Image.Image`` of mode "RGB" or "L" with late pixels; see the module's docstring.

    Its ``info`` is that of the file it was made from, as Pillow hands it down. What ``Image.open`` gives is a
    ``accel.lazy.jpeg_file.LazyJpegFile``, all others are ``LazyPlainImage``s.

    Attributes:
        becomes: the class of Pillow's image that it stands for.
    """

    becomes: ClassVar[type[Image.Image]] = Image.Image

    # What Image.__init__ would set, once for all of them: making an image costs a third of a microsecond.
    _im: Any = None
    palette = None
    _exif: Any = None
    _readonly = 0
    if not isinstance(getattr(Image.Image, "readonly", None), property):  # Pillow 11.1
        readonly = 0

    _recipe: Recipe | None  # has no default: a large file is read when it is missing
    _loaded = False  # Pillow would have decoded it by now
    _info: dict[Any, Any] | None = None  # None: as the file has it
    _touched_by: str | None = None
    _parent = False  # another image was made from it

    @staticmethod
    def load_rgb(source: Source) -> LazyImage:
        """What ``Image.open(...).convert("RGB")`` gives."""
        header = source.header
        image = LazyPlainImage._make(Recipe(source), header.mode, (header.width, header.height))
        return image if header.mode == "RGB" else image.then("convert", ("RGB",), "RGB")

    @staticmethod
    def of_pixels(source: Source, info: dict[Any, Any]) -> LazyImage:
        """The image that raw pixels are, with what Pillow's methods hand down of ``info``."""
        header = source.header
        image = LazyPlainImage._make(Recipe(source), header.mode, (header.width, header.height))
        image._info = info.copy()
        return image

    @staticmethod
    def of_recipe(recipe: Recipe, mode: str, size: tuple[int, int]) -> LazyImage:
        """The image that a recipe's pixels are, of no file, without ``info``."""
        image = LazyPlainImage._make(recipe, mode, size)
        image._info = {}
        return image

    @classmethod
    def _make(cls, recipe: Recipe, mode: str, size: tuple[int, int]) -> Self:
        image = cls.__new__(cls)
        image._recipe = recipe
        image._mode = mode
        image._size = size
        return image

    @property
    def recipe(self) -> Recipe | None:
        """The recipe while the pixels are late, else None."""
        return self._recipe if self._im is None else None

    def then(self, name: str, params: tuple[Any, ...], mode: str | None = None) -> LazyImage:
        """This image with one more step recorded."""
        assert self._recipe is not None
        self._loaded = True
        if self._parent:
            self.used_again()
        self._parent = True
        source, steps, values, _ = self._recipe
        height, width = OPS[name].size((self._size[1], self._size[0]), params)
        return self._made(Recipe(source, (*steps, (name, params)), values), mode or self._mode, (width, height))

    def used_again(self) -> None:
        """Be prepared for what is made from an image that others were made from before.

        Of a file, all is decoded then, and kept. An image with steps that was computed twice already is computed once
        more, by itself, and is of pixels from then on; not where it would be computed on a device.
        """
        recipe = self._recipe
        assert recipe is not None
        source, steps = recipe.source, recipe.steps
        if not steps or steps == _COLOUR:
            source.shared = True
        elif source.asked > 1 and not backend_of(source.selection).devices:
            width, height = self._size
            if kept.values_fit(3 * width * height):
                self.keep_pixels()

    def keep_pixels(self) -> None:
        """Compute the pixels, and be made of them; an image that cannot be computed stays as it is."""
        recipe = self._recipe
        assert recipe is not None
        _ = self.info  # of the file
        with suppress(DecodeError), log.settling:
            pixels = materialize.pixels(recipe).tobytes()
            source = recipe.source
            self._recipe = Recipe(Source(pixels, Raw(*self._size, mode=self._mode), source.name, source.selection))
            counters.count(counters.KEPT)

    def _made(self, recipe: Recipe, mode: str, size: tuple[int, int]) -> LazyImage:
        """An image made from this one: of no file any more, with its ``info``."""
        image = LazyPlainImage._make(recipe, mode, size)
        if self._info is not None:
            image._info = self._info.copy()
        return image

    def _recorded(self, steps: tuple[Step, ...]) -> Image.Image:
        """This image with these steps recorded; a copy where there are none."""
        if not steps:
            return self.copy()
        image = self
        for name, params in steps:
            image = image.then(name, params)
        return image

    # -- recorded: the Pillow methods that torchvision and users call ---------------------------------------

    def copy(self) -> Image.Image:
        recipe = self.recipe  # asked for once: another thread may be computing the pixels
        if recipe is None:
            return super().copy()
        self._loaded = True
        if self._parent:
            self.used_again()
            recipe = self._recipe or recipe
        self._parent = True
        return self._made(recipe, self._mode, self._size)

    def convert(self, mode: str | None = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Image.Image:
        if self.recipe is not None and not matrix:
            if not mode or mode == self._mode:
                return self.copy()
            if mode == "RGB" and "transparency" not in (self._info or ()):  # a file's own info never has it
                return self.then("convert", ("RGB",), mode)
            if mode == "L" and "transparency" not in (self._info or ()):
                return self.then("to_grayscale", (1,), mode)
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
        if width < 1 or height < 1 or _too_large(width, height):
            return super().crop((left, top, right, bottom))
        return self.then("crop", (top, left, height, width))

    def resize(
        self, size: Any, resample: int | None = None, box: Any = None, reducing_gap: float | None = None
    ) -> Image.Image:
        late = self._im is None and self._recipe is not None
        steps = resizing.resize_steps(self, size, resample, box, reducing_gap) if late else None
        if steps is not None:
            return self._recorded(steps)
        if late and _has_no_pixels(size):  # let Pillow raise what it raises, without decoding for it
            return Image.new(self._mode, (2, 2)).resize(size, resample, None, reducing_gap)
        return super().resize(size, resample, box, reducing_gap)

    def reduce(self, factor: Any, box: Any = None) -> Image.Image:
        late = self._im is None and self._recipe is not None
        steps = resizing.reduce_steps(self._size, factor, box) if late else None
        return super().reduce(factor, box) if steps is None else self._recorded(steps)

    def thumbnail(self, size: Any, resample: Any = Image.Resampling.BICUBIC, reducing_gap: float | None = 2.0) -> None:
        drafts = reducing_gap is not None and isinstance(self, JpegImageFile) and not self._loaded
        if self._im is not None or self._recipe is None or drafts:
            return super().thumbnail(size, resample, reducing_gap)
        wanted = resizing.Thumbnail(self._size, size, resample, reducing_gap).resized
        if wanted is None:
            return None
        args, kwargs = wanted
        image = self.resize(*args, **kwargs)
        recipe = image.recipe if isinstance(image, LazyImage) else None
        self._size, self._loaded, self._parent = image.size, True, False
        if recipe is None:
            self.im = image.im
        else:
            self._recipe = recipe
        return None

    def transpose(self, method: Image.Transpose) -> Image.Image:
        steps = pillow_args.TRANSPOSITIONS.get(method) if self._im is None and self._recipe is not None else None
        return super().transpose(method) if steps is None else self._recorded(steps)

    def transform(
        self, size: Any, method: Any, data: Any = None, resample: int = 0, fill: int = 1, fillcolor: Any = None
    ) -> Image.Image:
        late = self._im is None and self._recipe is not None
        step = pillow_args.step(self, size, method, data, resample, fillcolor) if late else None
        if step is None:
            return super().transform(size, method, data, resample, fill, fillcolor)
        return self.then(*step)

    def point(self, lut: Any, mode: str | None = None) -> Image.Image:
        late = self._im is None and self._recipe is not None
        if not late or mode is not None or isinstance(lut, Image.ImagePointHandler):
            return super().point(lut, mode)
        table = levels.of_point(lut, self._mode)
        return super().point(lut) if table is None else self.then("point", (table,))

    def pad(self, padding: tuple[int, int, int, int], mode: PadMode, fill: Any) -> LazyImage:
        """Record a pad by (left, top, right, bottom) pixels; ``fill`` is any colour Pillow takes, or None."""
        colour = None
        if mode == "constant":
            colour = _pixel(self._mode, fill)
        image = self.then("pad", (*padding, mode, colour))
        image._info = {}  # torchvision pads by making a new image
        return image

    # -- the pixels, when they are asked for ----------------------------------------------------------------

    @property
    def im(self) -> Any:
        if self._im is None:
            self._im = self._pixels()
        return super().im

    @im.setter
    def im(self, im: Any) -> None:
        self._im = im

    def _pixels(self) -> Any:
        assert self._recipe is not None
        self._touched_by = caller()
        what = f"the pixels of a late image were asked for by {self._touched_by}"
        counters.early(what if self._recipe.steps else None)
        with log.settling:
            pixels = materialize.pixels(self._recipe)
        return Image.frombytes(self._mode, self._size, pixels.tobytes()).im

    def load(self) -> Any:
        """Pixel access, as Pillow's; computes nothing until a pixel is read or written."""
        self._loaded = True
        return _LateAccess(self) if self.recipe is not None else self._load_now()

    def _load_now(self) -> Any:
        _ = self.im
        return Image.Image.load(self)  # not that of an image file, which would read it

    @property
    def info(self) -> dict[Any, Any]:
        if self._info is None:
            self._info = dict(self._file_of_pillow().info)
        return self._info

    @info.setter
    def info(self, info: dict[Any, Any]) -> None:
        self._info = info

    def _file_of_pillow(self) -> JpegImageFile:
        """The file it was made from, as Pillow opens it."""
        assert self._recipe is not None
        source = self._recipe.source
        several = isinstance(source.header, Header) and source.header.pictures
        return (jpeg_factory if several else JpegImageFile)(BytesIO(source.data))

    # -- identity -------------------------------------------------------------------------------------------

    @property
    def __class__(self) -> type[Any]:
        return type(self)

    @__class__.setter
    def __class__(self, cls: type[Any]) -> None:
        """Become an image of another class, as fastai has it; with pixels, unless that class is one of late images."""
        if not issubclass(cls, LazyImage):
            attributes = self._attributes()
            self.__dict__.clear()
            self.__dict__.update(attributes)
        object.__dict__["__class__"].__set__(self, cls)

    def _attributes(self) -> dict[str, Any]:
        """What Pillow's own image would have in its ``__dict__``."""
        plain = self.becomes.__new__(self.becomes)
        Image.Image.__init__(plain)
        plain.im, plain._mode, plain._size, plain.info = self.im, self._mode, self._size, self.info
        plain._exif = self._exif
        return vars(plain) | {name: value for name, value in vars(self).items() if name not in _OURS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image.Image):
            return False
        if self.becomes is not getattr(type(other), "becomes", type(other)):
            return False
        return (
            self.mode == other.mode
            and self.size == other.size
            and self.info == other.info
            and self.getpalette() == other.getpalette()
            and self.tobytes() == other.tobytes()
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """As Pillow's image, with its pixels: what is saved can be loaded without accel."""
        return copyreg._reconstructor, (self.becomes, object, None), self.__getstate__()  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> Image.Image:
        make, arguments, *state = send(self)
        image: Image.Image = make(*deepcopy(arguments, memo))
        for each in state:
            image.__setstate__(deepcopy(each, memo))
        return image


class StandsFor(ABCMeta):  # which Pillow gives its files
    """The class of a class of late images, as whose instances those of Pillow's class count that it stands for.

    So ``isinstance(image, type(late))`` is what it would be if torchvision had made the other image. Whether an image
    is one of accel's, ``isinstance(image, LazyImage)`` says.
    """

    becomes: type[Image.Image]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.becomes)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return cls.becomes in subclass.__mro__  # ABCMeta itself would ask all subclasses, so this one again


class LazyPlainImage(LazyImage, metaclass=StandsFor):
    """A late image of no file: an ``Image.Image`` of no other class."""


def send(image: LazyImage) -> tuple[Any, ...]:
    """How an image goes to another process of this program: late ones as encoded bytes and recipes.

    Nothing is decoded and nothing can fail, for this may run in a queue's feeder thread.
    """
    recipe = image.recipe
    if recipe is None:
        return image.__reduce_ex__(2)
    state = {name: image.__dict__[name] for name in _KEPT if name in image.__dict__}
    return _restore_late, (type(image), recipe, image._mode, image._size, state)


ForkingPickler.register(LazyPlainImage, send)


class _LateAccess:
    """What ``load()`` returns while the pixels are late; the first use computes them."""

    def __init__(self, image: LazyImage) -> None:
        self._image = image

    def __getitem__(self, position: tuple[int, int]) -> Any:
        return self._image._load_now()[position]

    def __setitem__(self, position: tuple[int, int], colour: Any) -> None:
        self._image._load_now()[position] = colour


_COLOUR = (("convert", ("RGB",)),)
_KEPT = ("filename", "_info", "_loaded")
_OURS = (
    "_recipe",
    "_im",
    "_mode",
    "_size",
    "_loaded",
    "_info",
    "_touched_by",
    "_exif",
    "_file",
    "_open_file",
    "_parent",
    "_unread",
    "_told",
)


def _restore_late(
    kind: type[LazyImage], recipe: Recipe, mode: str, size: tuple[int, int], state: dict[str, Any]
) -> LazyImage:
    image = kind._make(recipe, mode, size)
    image.__dict__.update(state)
    return image


def _has_no_pixels(size: Any) -> bool:
    try:
        width, height = map(operator.index, size)
    except (TypeError, ValueError):
        return True
    return width < 1 or height < 1


@lru_cache(maxsize=64)
def _pixel(mode: str, colour: Any) -> tuple[Any, ...]:
    """What a pixel of a colour holds, one value per channel."""
    pixel = Image.new(mode, (1, 1), colour).getpixel((0, 0))
    return pixel if isinstance(pixel, tuple) else (pixel,)


def _too_large(width: int, height: int) -> bool:
    limit = Image.MAX_IMAGE_PIXELS
    return limit is not None and width * height > limit
