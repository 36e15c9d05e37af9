"""Checks that transforms, datasets and functions are torchvision's own, with nothing added or replaced in them."""

from __future__ import annotations

import math
import random
from collections.abc import Container, Sequence
from enum import Enum
from functools import cache
from operator import attrgetter, is_
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import Any

import torch
import torchvision
from PIL import Image
from torch import nn
from torch.nn.modules import module
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import functional as F1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F2

from accel.errors import BackendUnavailable
from accel.system import arithmetic
from accel.system.private_names import private
from accel.system.timing import clocks

F_pil = private("torchvision.transforms._functional_pil", "crop")
policies = private("torchvision.transforms.autoaugment", "_apply_op")
_utils = private("torchvision.transforms.v2.functional._utils", "_KERNEL_REGISTRY")
_random = private("random", "_inst")
_torch = private("torch", "_C._len_torch_function_stack", "_C._len_torch_dispatch_stack")
_device = private("torch.utils._device", "CURRENT_DEVICE")


class Refused(Exception):
    """The reason why a batch or an image goes the usual way."""


_ROOTS = (
    *[f"{Path(str(package.__file__)).parent}/" for package in (torch, torchvision)],
    str(random.__file__),
    f"{Path(__file__).parents[2]}/",
)
_NAMES_OF_METHODS = (
    "__call__ _call_impl _wrapped_call_impl _slow_forward _compiled_call_impl __getattribute__ __getattr__ forward "
    "get_params make_params transform check_inputs _needs_transform_list _call_kernel _transformed_types "
    "_generate_value _get_random_item _augmentation_space _AUGMENTATION_SPACE _apply_image_or_video_transform "
    "_flatten_and_extract_image_or_video _unflatten_and_insert_image_or_video __iter__"
)
METHODS = tuple(_NAMES_OF_METHODS.split())
_CLOCKED = METHODS.index("__call__"), METHODS.index("forward")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)
_OF_COLOURS = (
    "adjust_brightness adjust_contrast adjust_saturation adjust_hue adjust_sharpness posterize solarize autocontrast "
    "equalize invert affine rotate perspective"
)
_CALLED = (
    (torch, "rand empty randint randperm multinomial exp log tensor"),
    (random, "choices shuffle"),
    (random.Random, "choices shuffle random"),
    (v2.ColorJitter, "_generate_value"),
    (F1, "get_dimensions resized_crop resize crop center_crop pad hflip vflip to_tensor pil_to_tensor normalize"),
    (F1, "convert_image_dtype erase to_grayscale rgb_to_grayscale gaussian_blur _get_perspective_coeffs"),
    (policies, "_apply_op"),
    *[(functional, _OF_COLOURS) for functional in (F1, F2)],
    (F_pil, f"get_dimensions resize crop pad hflip vflip to_grayscale {_OF_COLOURS}"),
    (F2, "resized_crop resize crop center_crop pad horizontal_flip vertical_flip to_image pil_to_tensor to_dtype"),
    (F2, "convert_image_dtype normalize erase to_grayscale rgb_to_grayscale grayscale_to_rgb gaussian_blur"),
    (F2, "permute_channels"),
)


@cache
def called() -> tuple[tuple[Any, tuple[str, ...]], ...]:
    """Modules and classes, and the names of their functions that transforms may call."""
    return tuple((owner, tuple(name for name in names.split() if hasattr(owner, name))) for owner, names in _CALLED)


def kernels() -> list[Any]:
    """The kernels of v2's functions for images."""
    registry = _utils._KERNEL_REGISTRY
    return [of_kinds.get(kind) for of_kinds in registry.values() for kind in _KINDS]


_KINDS = Image.Image, torch.Tensor, tv_tensors.Image
_found: dict[Any, tuple[Any, ...]] = {}


def is_stock(value: Any) -> bool:
    """Whether a function, and those that it wraps, are from the files of torch, torchvision, accel or ``random``.

    True also for functions in C, and for objects that cannot be called.
    """
    if isinstance(value, MethodType) and value.__self__ is _random._inst:
        value = value.__func__
    while isinstance(value, FunctionType):
        if not value.__code__.co_filename.startswith(_ROOTS):
            return False
        value = getattr(value, "__wrapped__", None)
    return isinstance(value, _IN_C) or not callable(value)


_IN_C = BuiltinFunctionType, WrapperDescriptorType, MethodDescriptorType


def unchanged(what: Any, now: tuple[Any, ...]) -> bool:
    """Whether the objects ``now`` are those of the last look at ``what``, or else all stock (then they are noted)."""
    known = _found.get(what)
    if known is not None and len(known) == len(now) and all(map(is_, known, now)):
        return True
    if not all(map(is_stock, now)):
        return False
    _found[what] = now
    return True


def methods(cls: type, names: tuple[str, ...] = METHODS) -> tuple[Any, ...]:
    """A class's attributes of these names (None: missing) without a profile's clocks, and their code or content. A
    change makes another program."""
    found = [getattr(cls, name, None) for name in names]
    if clocks.originals and names is METHODS:
        for place in _CLOCKED:
            found[place] = clocks.originals.get(found[place], found[place])
    return _with_code(found)


def _with_code(found: list[Any]) -> tuple[Any, ...]:
    codes = [each.__code__ for each in found if type(each) is FunctionType]
    contents = [part for each in found if type(each) is dict for item in each.items() for part in item]
    return (*found, *codes, *contents)


class Originals:
    """The values that some names had when this was made.

    Args:
        named: modules or classes, each with names in it.
    """

    def __init__(self, *named: tuple[Any, Sequence[str]]) -> None:
        self._named = [(attrgetter(*names, names[0]), owner) for owner, names in named if names]
        self._then = self._now()
        self._stock = self._then is not None and all(is_stock(each) for found in self._then for each in found)

    def hold(self) -> bool:
        """Whether the names have the same values now, and these are torch's or torchvision's own."""
        return self._stock and self._now() == self._then

    def _now(self) -> list[tuple[Any, ...]] | None:
        """The current values; None if a name is gone."""
        try:
            return [get(owner) for get, owner in self._named]
        except (AttributeError, BackendUnavailable):  # the latter: the module is gone
            return None


def usual() -> bool:
    """Whether torch makes float32 tensors on the CPU unless told otherwise, and none of its modes is on."""
    return (
        _device.CURRENT_DEVICE is None
        and torch.get_default_dtype() is torch.float32
        and not _torch._C._len_torch_function_stack()
        and not _torch._C._len_torch_dispatch_stack()
    )


_changes = 0


def surroundings() -> int:
    """Check what all transforms depend on; return how often it has changed.

    Raises:
        Refused: something is not as usual.
    """
    global _changes
    if _device.CURRENT_DEVICE is not None or torch.get_default_dtype() != torch.float32:
        raise Refused("the default device or dtype is not the usual one")
    if _torch._C._len_torch_function_stack() or _torch._C._len_torch_dispatch_stack():
        raise Refused("a mode of torch is active")
    if arithmetic.autocasts():
        raise Refused("autocast is on")
    if any(getattr(module, name, None) for name in GLOBAL_HOOKS):
        raise Refused("there are hooks on all modules")
    now = _with_code([getattr(owner, name, None) for owner, names in called() for name in names] + kernels())
    before = _found.get(None)
    if not unchanged(None, now):
        raise Refused("functions of torchvision's or torch's were replaced")
    if before is not None and _found[None] is not before:
        _changes += 1
    return _changes


Leaf = tuple[type, tuple[tuple[str, Any], ...], tuple[type, ...], tuple[Any, ...]]
"""A transform as a hashable key: its class, its attributes by name and value, the types of these, its methods."""


def leaves(transform: Any, known: Container[type]) -> list[tuple[Any, Leaf]]:
    """The transforms that a composition consists of, in order, each with its key.

    Args:
        known: the classes that may be among them.

    Raises:
        Refused: one of them is not known, or not as torchvision made it.
    """
    cls = type(transform)
    if cls in (v1.Compose, v2.Compose, nn.Sequential):
        own = vars(transform)
        check(transform, cls, own)
        parts = own["_modules"].values() if cls is nn.Sequential else _listed(transform, own.get("transforms", ()))
        return [leaf for part in parts for leaf in leaves(part, known)]
    if cls not in known:
        raise Refused(_unknown(transform))
    own = vars(transform)
    found = check(transform, cls, own)
    kinds: list[type] = []
    left_out = _CHOSEN if cls in _CHOOSING else OF_MODULES
    values = tuple([(name, _frozen(value, kinds)) for name, value in own.items() if name not in left_out])
    if cls in _CHOOSING:
        chosen = tuple([tuple([leaf for _, leaf in part]) for part in within(transform, known)])
        values = (*values, ("transforms", chosen))
    return [(transform, (cls, values, tuple(kinds), found))]


def _listed(transform: Any, parts: Any) -> Sequence[Any]:
    """The transforms that another one has in a list or tuple."""
    if type(parts) not in (list, tuple):
        raise Refused(f"the transforms of {type(transform).__name__} are no list")
    return parts  # type: ignore[no-any-return]


def _unknown(transform: Any) -> str:
    """Why a transform that is none of torchvision's known ones is not compiled."""
    if transform is None:
        return "there is no transform"
    called = getattr(transform, "lambd", transform)  # of a Lambda
    called = getattr(called, "__func__", called)
    if not isinstance(called, FunctionType):
        return f"{type(transform).__name__} is not compiled"
    code = called.__code__
    place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    if isinstance(transform, (v1.Lambda, v2.Lambda)):
        return f"Lambda is not compiled ({called.__name__}, {place})"
    return f"the function {called.__name__} is not compiled ({place})"


def within(transform: Any, known: Container[type]) -> list[list[tuple[Any, Leaf]]]:
    """The transforms inside one that chooses or orders them at random, each as ``leaves`` returns it."""
    own = vars(transform)
    parts = own.get("transforms", own.get("_modules", {}).get("transforms"))
    if type(parts) is nn.ModuleList:
        check(parts, nn.ModuleList, vars(parts))
        parts = list(parts._modules.values())
    return [leaves(part, known) for part in _listed(transform, parts)]


def hands_on(transform: Any) -> bool:
    """Whether a stock transform returns other inputs beside an image as they are; v2's do, if those inside them do."""
    own = vars(transform)
    parts = own.get("transforms", own.get("_modules", {}).get("transforms", ()))
    return isinstance(transform, v2.Transform) and all(map(hands_on, parts))


OF_MODULES = frozenset(vars(nn.Module()))
_CHOSEN = OF_MODULES | {"transforms"}
_CHOOSING = {each for version in (v1, v2) for each in (version.RandomApply, version.RandomChoice, version.RandomOrder)}


def check(transform: Any, cls: type, own: dict[str, Any]) -> tuple[Any, ...]:
    """The methods of a transform, as a hashable key.

    Raises:
        Refused: some were replaced, or it has hooks.
    """
    found = methods(cls)
    if not unchanged(cls, found):
        raise Refused(f"methods of {cls.__name__} were replaced")
    if not _METHODS.isdisjoint(own):
        raise Refused(f"methods of one {cls.__name__} were replaced")
    if issubclass(cls, nn.Module) and any(own.get(name) for name in HOOKS):
        raise Refused(f"{cls.__name__} has hooks")
    return tuple(
        [id(each) if type(each) is dict else each for each in found]
    )  # dicts are kept alive, so ids stay valid


_METHODS = frozenset(METHODS)


def _frozen(value: Any, kinds: list[type]) -> Any:
    """A parameter's value as a hashable key; the types that it consists of are appended to ``kinds``.

    Raises:
        Refused: a value is of another type, or a float that is not finite or negative zero.
    """
    kind = type(value)
    kinds.append(kind)
    if kind is list or kind is tuple:
        return tuple([_frozen(each, kinds) for each in value])
    if kind is dict:
        return tuple([(_frozen(key, kinds), _frozen(each, kinds)) for key, each in value.items()])
    if kind is float:
        if not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0):
            raise Refused("a parameter is not finite, or a negative zero")
        return value
    if value is None or kind in (int, bool, str, type, type(torch.Tensor)) or isinstance(value, (torch.dtype, Enum)):
        return value
    if kind is torch.Tensor and value.is_cpu and value.ndim == 1 and value.dtype == torch.float32:
        return tuple([_frozen(each, kinds) for each in value.tolist()])
    raise Refused(f"a parameter is of {kind.__name__}")
