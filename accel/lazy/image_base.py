"""The base class of lazy images: their recipes, the computation of their pixels, and the interface of Pillow's images.

From the first use of its pixels on, an image is an ordinary one. Recording stops there, too: an image that has pixels
may have been painted on.
"""

from __future__ import annotations

import copyreg
import weakref
from abc import ABCMeta
from collections.abc import Callable
from copy import deepcopy
from io import BytesIO
from typing import Any, ClassVar, cast

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile, jpeg_factory

from accel.codec import foreign
from accel.codec.header import Header, Raw
from accel.processes.sending import raised_by_receiver
from accel.recipes.recipe import Recipe
from accel.runtime import compute
from accel.system import counters, log
from accel.system.caller import caller


class Field:
    """A field of Pillow's images that its methods set: ``_set_field`` of the image sets it, accel by ``__dict__``.

    Without a ``__get__``, it is read from ``__dict__`` directly.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, image: LazyImageBase, value: Any) -> None:
        image._set_field(self.name, value)


class LazyImageBase(Image.Image):
    """A ``PIL.Image.Image`` of mode "RGB" or "L" whose pixels are not computed yet.

    Attributes:
        becomes: the class of Pillow's that it stands for.
    """

    becomes: ClassVar[type[Image.Image]] = Image.Image

    # The attributes that Image.__init__ sets, once for all images: making one then takes a third of a microsecond.
    _im: Any = None
    _exif: Any = None
    _readonly = 0
    if not isinstance(getattr(Image.Image, "readonly", None), property):  # Pillow 11.1
        readonly = 0

    _mode: str = cast("str", Field())
    _size: tuple[int, int] = cast("tuple[int, int]", Field())
    _recipe: Recipe | None  # no default: a large file is read when the attribute is missing
    _loaded = False  # whether Pillow would have decoded it by now
    _info: dict[Any, Any] | None = None  # None: the file's
    _touched_by: str | None = None
    _access: Callable[[], _LazyAccess | None] = staticmethod(lambda: None)  # a weak reference to what load() returned
    _copied = False  # whether it was pickled, or is a deep copy
    _parent = False  # whether another image was made from it

    # -- computing the pixels -------------------------------------------------------------------------------

    @property
    def im(self) -> Any:
        if self._im is None:
            self._im = self._pixels()
            self._loaded = True
            access = self._access()
            if access is not None:
                access.pixels = self._im.pixel_access(self.readonly)
        return super().im

    @im.setter
    def im(self, im: Any) -> None:
        self._compute_for_access()
        self._im = im

    def _compute_for_access(self) -> None:
        """Compute the pixels if the user has an access to them, before the image gets others."""
        access = self._access() if self._im is None else None
        if access is not None and access.pixels is None:
            _ = self.im

    def close(self) -> None:
        self._compute_for_access()
        Image.Image.close(self)

    @property
    def palette(self) -> Any:
        return self.__dict__.get("palette")

    @palette.setter
    def palette(self, palette: Any) -> None:
        self._set_field("palette", palette)

    def _set_field(self, name: str, value: Any) -> None:
        """Set a field of Pillow's; the pixels are computed first, because recipes know nothing of what is set."""
        if self._im is None and self.__dict__.get("_recipe") is not None:
            _ = self.im
        self.__dict__[name] = value

    def _pixels(self) -> Any:
        assert self._recipe is not None
        self._touched_by = caller()
        what = f"{self._touched_by} asked for the pixels of a single image"
        counters.early(self._touched_by, what if self._recipe.steps else None)
        with log.flushing:
            pixels = compute.pixels(self._recipe)
        return Image.frombytes(self._mode, self._size, pixels.tobytes()).im

    def load(self) -> Any:
        """Pixel access like Pillow's; computes nothing until a pixel is read or written."""
        self._loaded = True
        if self._im is not None or self._recipe is None:
            return self._load_now()
        access = self._access()
        if access is None:
            access = _LazyAccess(self)
            self._access = weakref.ref(access)
        return access

    def _load_now(self) -> Any:
        _ = self.im
        return Image.Image.load(self)  # not ``load`` of an image file, which would read the file

    @property
    def info(self) -> dict[Any, Any]:
        # before the info: a thread that puts pixels in its place has set that first; None of a file that is not read
        recipe = self.__dict__.get("_recipe")
        if self._info is None:
            self._info = dict(self._file_of_pillow(recipe).info)
        return self._info

    @info.setter
    def info(self, info: dict[Any, Any]) -> None:
        self._info = info

    if not hasattr(Image.Image, "_copy_info"):  # before Pillow 13, which copies lists

        def _copy_info(self) -> dict[Any, Any]:
            return self.info.copy()

    def _file_of_pillow(self, recipe: Recipe | None = None) -> JpegImageFile:
        """Pillow's own image of the file that this, or ``recipe``, was made from."""
        recipe = recipe or self._recipe
        assert recipe is not None
        source = recipe.source
        if isinstance(source.header, Raw) and source.header.decoder:
            return foreign.opened(source.file())  # type: ignore[return-value]
        several = isinstance(source.header, Header) and source.header.pictures
        return (jpeg_factory if several else JpegImageFile)(BytesIO(source.data))

    # -- identity -------------------------------------------------------------------------------------------

    @property
    def __class__(self) -> type[Any]:
        return type(self)

    @__class__.setter
    def __class__(self, cls: type[Any]) -> None:
        """Become an image of another class, as fastai does; with pixels, unless that is a class of lazy images."""
        if not issubclass(cls, LazyImageBase):
            attributes = self._attributes()
            self.__dict__.clear()
            self.__dict__.update(attributes)
        object.__dict__["__class__"].__set__(self, cls)

    def _attributes(self) -> dict[str, Any]:
        """The attributes that Pillow's own image would have, with the pixels."""
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
        """Pickle as Pillow's image, with its pixels, so that it can be loaded without accel."""
        return copyreg._reconstructor, (self.becomes, object, None), self.__getstate__()  # type: ignore[attr-defined]

    def __setstate__(self, state: list[Any]) -> None:
        self._compute_for_access()
        self.__dict__.update(_recipe=None, _loaded=True)
        super().__setstate__(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Image.Image:
        self._loaded = True
        make, arguments, *state = send(self)
        image: Image.Image = make(*deepcopy(arguments, memo))
        for each in state:
            image.__setstate__(deepcopy(each, memo))
        return image


@raised_by_receiver
def send(image: LazyImageBase) -> tuple[Any, ...]:
    """Reduce an image for another process of this program: a lazy one to encoded bytes and recipes.

    What comes of it is as Pillow's: loaded, and without the attributes that Pillow does not pickle. This decodes
    nothing.
    """
    recipe = image._recipe if image._im is None else None
    if recipe is None:
        return image.__reduce_ex__(2)
    state = {name: image.__dict__[name] for name in ("filename", "_info") if name in image.__dict__}
    return _restore_lazy, (type(image), recipe, image._mode, image._size, state)


class _LazyAccess:
    """The pixel access that ``load()`` returns; its first use computes the pixels.

    Like Pillow's, it stays with these pixels: ``putalpha`` or a thumbnail may give the image others.
    """

    pixels: Any = None  # Pillow's access, once the pixels are computed

    def __init__(self, image: LazyImageBase) -> None:
        self._image = image

    def _computed(self) -> Any:
        if self.pixels is None:
            _ = self._image.im
        return self.pixels or self._image._load_now()  # another thread may just have computed them

    def __getitem__(self, position: tuple[int, int]) -> Any:
        return self._computed()[position]

    def __setitem__(self, position: tuple[int, int], colour: Any) -> None:
        self._computed()[position] = colour


_STATE = ("_recipe", "_im", "_mode", "_size", "_loaded", "_info", "_exif")
_OURS = (*_STATE, "_touched_by", "_file", "_open_file", "_access", "_copied", "_parent", "_unread", "_source_of")


def _restore_lazy(
    kind: type[LazyImageBase], recipe: Recipe, mode: str, size: tuple[int, int], state: dict[str, Any]
) -> LazyImageBase:
    image = kind.__new__(kind)
    image.__dict__.update(_recipe=recipe, _mode=mode, _size=size, _loaded=True, _copied=True, **state)
    return image


class StandsFor(ABCMeta):  # the metaclass of Pillow's files
    """Metaclass of classes of lazy images, which count instances of the Pillow class that they stand for as their own.

    So ``isinstance(image, type(lazy))`` is the same as without accel. ``isinstance(image, LazyImage)`` tells whether an
    image is one of accel's.
    """

    becomes: type[Image.Image]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.becomes)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return cls.becomes in subclass.__mro__  # ABCMeta's own would ask all subclasses, which ask this again
