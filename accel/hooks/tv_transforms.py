"""Classes of ``torchvision.transforms``: random parameters drawn as torchvision does, with less work between the draws.

Most of the host's work for an image is torchvision's drawing of parameters, and most of that is making one-element
tensors. Its code runs as it is, but with a ``torch`` whose ``log(tensor(ratio))`` is cached and whose ``empty(1)``,
``randint`` and ``rand`` use the same tensor again: the draws, their order and the results are the same, which is
checked before it is used.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import RandomCrop
from torchvision.transforms import functional as F

from accel.hooks.originals import Originals
from accel.hooks.own_generators import Own
from accel.hooks.patch import Body, Function, Shortcut, copied
from accel.hooks.recording.tensors import linear_transformation
from accel.lazy.image import LazyImage
from accel.system.private_names import private

F_pil = private("torchvision.transforms._functional_pil", "get_dimensions", "pad", "crop", "hflip", "vflip")
_device = private("torch.utils._device", "CURRENT_DEVICE")
_torch = private("torch", "_C._len_torch_function_stack", "_C._len_torch_dispatch_stack")


def place(original: FunctionType, arguments: Callable[[random.Random], tuple[Any, ...]]) -> Function:
    """``get_params`` of a crop: (img, ...) -> (top, left, height, width)."""
    quick = with_cheap_tensors(original, get_dimensions=_dimensions)
    if not checked(original, quick, arguments):
        return original
    own = Originals((F, ("get_dimensions",)), (F_pil, ("get_dimensions",)))

    def get_params(img: Any, *args: Any, **kwargs: Any) -> Any:
        return (quick if isinstance(img, LazyImage) and usual() and own.hold() else original)(img, *args, **kwargs)

    return get_params


def flip(original: FunctionType) -> Function:
    """``forward`` of ``torchvision.transforms.RandomHorizontalFlip`` or ``RandomVerticalFlip``: (img) -> image."""
    quick = with_cheap_tensors(
        original,
        hflip=lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        vflip=lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    )
    if not checked(original, quick, _some_flip):
        return original
    own = Originals((F, ("hflip", "vflip")), (F_pil, ("hflip", "vflip")))

    def forward(self: Any, img: Any) -> Any:
        lazy = isinstance(img, LazyImage) and type(self.p) is float
        return (quick if lazy and usual() and own.hold() else original)(self, img)

    return forward


def crop(original: FunctionType) -> Function:
    """``forward`` of ``torchvision.transforms.RandomCrop``: (img) -> image, for Pillow images."""
    quick = with_cheap_tensors(
        original,
        get_dimensions=_dimensions,
        pad=lambda image, padding, fill, mode="constant": F_pil.pad(image, padding, fill, mode),
        crop=lambda image, top, left, height, width: image.crop((left, top, left + width, top + height)),
    )
    if not checked(original, quick, _some_crop_transform):
        return original
    names = "get_dimensions", "pad", "crop"
    own = Originals((F, names), (F_pil, names))

    def forward(self: Any, img: Any) -> Any:
        padded = self.padding is not None and isinstance(img, Image.Image)
        return (quick if (padded or isinstance(img, LazyImage)) and own.hold() else original)(self, img)

    return forward


def _dimensions(image: Any) -> tuple[int, int, int]:
    """The channels (not used, always 3), height and width of a Pillow image."""
    width, height = image.size
    return 3, height, width


# -- cheaper draws ------------------------------------------------------------------------------------------


def usual() -> bool:
    """Whether torch itself makes tensors, on the CPU, of a dtype with a scratch tensor, and none of its modes is on."""
    return (
        _device.CURRENT_DEVICE is None
        and torch.get_default_dtype() in _scratch.floats
        and not _torch._C._len_torch_function_stack()
        and not _torch._C._len_torch_dispatch_stack()
        and _of_torch.hold()
    )


_of_torch = Originals((torch, ("tensor", "exp", "empty", "randint", "rand", "log")))


def with_cheap_tensors(function: FunctionType, **functional: Callable[..., Any]) -> FunctionType:
    """A copy of a function with cheaper functions in its ``torch``, and these functions in its ``F``."""
    cheap: dict[str, Any] = {"tensor": tuple, "exp": torch.Tensor.exp_, "empty": _empty, "randint": _randint}
    cheap |= {"rand": rand, "log": lambda values: _logarithms(values, torch.get_default_dtype())}
    namespaces = {"torch": _like(torch, **cheap), "F": _like(F, **functional)}
    return copied(function, {**function.__globals__, **namespaces})


def _like(module: ModuleType, **replaced: Callable[..., Any]) -> SimpleNamespace:
    namespace = SimpleNamespace()
    namespace.__dict__.update(vars(module), **replaced)
    return namespace


@lru_cache(maxsize=64)
def _logarithms(values: tuple[float, ...], dtype: torch.dtype) -> tuple[float, ...]:
    return tuple(torch.log(torch.tensor(values, dtype=dtype, device="cpu")).tolist())


class _Scratch(threading.local):
    """A thread's tensors of one element; a drawn value is read before the next draw overwrites it."""

    def __init__(self) -> None:
        with torch.inference_mode(False):  # else the tensors could not be used outside of inference mode
            self.floats = {dtype: torch.empty(1, dtype=dtype, device="cpu") for dtype in (torch.float32, torch.float64)}
            self.integer = torch.empty(1, dtype=torch.int64, device="cpu")


_scratch = _Scratch()


def _empty(size: int) -> torch.Tensor:
    return _scratch.floats[torch.get_default_dtype()]


def _randint(low: int, high: int, *, size: tuple[int]) -> torch.Tensor:
    return _scratch.integer.random_(low, high)


def rand(size: int) -> _Drawn:
    dtype = torch.get_default_dtype()
    return _Drawn(_scratch.floats[dtype].uniform_().item(), dtype)


class _Drawn:
    """A drawn value that compares with a number as a tensor of one element does: in the tensor's dtype."""

    __slots__ = ("dtype", "value")

    def __init__(self, value: float, dtype: torch.dtype) -> None:
        self.value = value
        self.dtype = dtype

    def __lt__(self, other: float) -> bool:
        return self.value < _rounded(other, self.dtype)

    def __ge__(self, other: float) -> bool:
        return self.value >= _rounded(other, self.dtype)


@lru_cache(maxsize=64)
def _rounded(value: float, dtype: torch.dtype) -> float:
    return torch.tensor(value, dtype=dtype, device="cpu").item()


# -- the check ----------------------------------------------------------------------------------------------

_alike: dict[CodeType, bool] = {}


def checked(one: FunctionType, other: Function, arguments: Callable[[random.Random], tuple[Any, ...]]) -> bool:
    """Whether two versions of a function, given the same draws, return the same and leave the same generator state."""
    code = one.__code__
    if code not in _alike:
        _alike[code] = _draw_alike(one, other, arguments)
    return _alike[code]


def _draw_alike(
    one: Callable[..., Any], other: Callable[..., Any], arguments: Callable[[random.Random], tuple[Any, ...]]
) -> bool:
    generator = random.Random(0)
    elsewhere = torch.get_default_device().type != "cpu"
    with torch.device("cpu") if elsewhere else nullcontext():  # the context costs more than the draws
        for _ in range(12):
            given = arguments(generator)
            seed = generator.randint(0, 99)
            by_one, by_other = (torch.Generator().manual_seed(seed) for _ in range(2))
            with Own(by_one):
                expected = one(*given)
            try:
                with Own(by_other):
                    found = other(*given)
            except Exception:
                return False
            if found != expected or not torch.equal(by_one.get_state(), by_other.get_state()):
                return False
    return True


# -- random arguments for comparing a shortcut with the original --------------------------------------------


def _some_small_crop(generator: random.Random) -> tuple[Any, ...]:
    size = generator.randint(5, 40), generator.randint(5, 40)
    return Image.new("L", size), (generator.randint(1, size[1]), generator.randint(1, size[0]))


def _some_crop_transform(generator: random.Random) -> tuple[Any, ...]:
    image = Image.effect_noise((generator.randint(5, 40), generator.randint(5, 40)), 50)
    size = generator.randint(3, 50)
    padding = generator.choice((None, 4, (1, 2), (1, 2, 3, 4)))
    mode = generator.choice(("constant", "reflect"))
    return RandomCrop(size, padding, True, generator.choice((0, 7)), mode), image


def _some_flip(generator: random.Random) -> tuple[Any, ...]:
    image = Image.linear_gradient("L").resize((3, 2))
    return SimpleNamespace(p=generator.choice((0.0, 0.1, 0.5, 1.0, generator.random()))), image


def some_crop(generator: random.Random) -> tuple[Any, ...]:
    """Arguments for ordinary crops, and for images so flat that only the fallback crop is left."""
    image = Image.new("L", (generator.randint(1, 600), generator.choice((3, 400))))
    return image, (generator.uniform(0.01, 1), 1.0), (0.75, generator.uniform(0.8, 3))


PATCHES = (
    Shortcut("torchvision.transforms.RandomResizedCrop.get_params", partial(place, arguments=some_crop)),
    Shortcut("torchvision.transforms.RandomCrop.get_params", partial(place, arguments=_some_small_crop)),
    Shortcut("torchvision.transforms.RandomCrop.forward", crop),
    Shortcut("torchvision.transforms.RandomHorizontalFlip.forward", flip),
    Shortcut("torchvision.transforms.RandomVerticalFlip.forward", flip),
    Body("torchvision.transforms.LinearTransformation.forward", linear_transformation),
)
