"""What a training step does, operator by operator: compared from group to group, since a replay repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from accel.resuming import random_states
from accel.resuming.random_states import LIBRARIES, Found

_ASKS = {"aten::_local_scalar_dense": "a tensor's number", "aten::nonzero": "the number of elements"}
_COPIES = ("aten::copy_", "aten::_to_copy")
_MOST = 5_000  # objects that are looked at
_FEW = 64  # elements of a tensor on the host whose values are compared


class Trace(TorchDispatchMode):
    """A mode in which a step is noted: each operator, its numbers, and which tensors it reads and writes.

    Two steps with equal ``calls`` launch the same kernels on the same memory, so that a capture of one is a capture of
    the other. Tensors that the step makes itself are known by their order, all others by where they lie, those on the
    host by their values.

    Attributes:
        calls: what was noted. reason: why the step cannot be captured; None: nothing was seen.
        parameters: leaves with gradients. generators: those that operators were given.
    """

    def __init__(self, step: Any, batch: Sequence[torch.Tensor], device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, ...]] = [("modes", *_modes())]
        self.parameters: dict[int, torch.Tensor] = {}
        self.generators: list[torch.Generator] = []
        self.reason: str | None = None
        roots = reached(step)[0]
        self.step, self._device, self._found = step, device, Found(roots)
        self._made: dict[int, tuple[int, int]] = {
            _place(each): (-1, number) for number, each in enumerate(batch) if each.layout is torch.strided
        }
        self._random, self._variables = _host_random(self._found, device), _plain_among(roots)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if _host_random(self._found, self._device) != self._random:
            self.refuse("it draws random numbers on the host: draw them in the loader, or on the device")
        now = _plain_among(reached(self.step)[0])
        rebound = [name for name, value in self._variables.items() if now.get(name, value) != value]
        if counts := (*self._found.unrestored(2), *rebound):
            self.refuse(f"it changes {counts[0]} on the host, which a replay does not")

    supports_higher_order_operators = True

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not hasattr(function, "_schema"):
            self.refuse(f"it runs {function}, which has functions of its own")
            return function(*args, **kwargs)
        name = function._schema.name
        if function.is_view or name.startswith("profiler::"):  # nothing is launched
            return function(*args, **kwargs)
        inputs = [*_flat(args), *_flat([*kwargs.values()])]
        try:
            self.calls.append((name, *kwargs, *map(self._fact, inputs)))
            tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
            self._look(name, tensors)
            places = set(map(_place, tensors))
        except (NotImplementedError, RuntimeError) as error:
            self.refuse(f"it has a tensor whose memory cannot be watched ({error})")
        results = function(*args, **kwargs)
        if self.reason is None:
            for number, each in enumerate(_flat([results])):
                if isinstance(each, torch.Tensor) and each.layout is torch.strided and _place(each) not in places:
                    self._made[_place(each)] = len(self.calls), number  # in place of what lay there before
        return results

    def refuse(self, reason: str) -> None:
        self.reason = self.reason or reason.splitlines()[0]

    def _look(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        on_device = [each for each in tensors if each.device == self._device]
        if name in _ASKS and on_device:
            self.refuse(f"it asks the device for {_ASKS[name]} (.item(), a condition, indexing by a mask)")
        if name.startswith(("c10d::", "_c10d_functional::")):
            self.refuse("it exchanges tensors with other processes")
        if name in _COPIES and any(each.device != self._device and each.numel() > 1 for each in tensors):
            self.refuse("it copies a tensor from the host or to it")
        for each in on_device:
            if each.requires_grad and each.is_leaf:
                self.parameters[id(each)] = each

    def _fact(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            if isinstance(value, torch.Generator):
                self.generators.append(value)
            return _plain(value)
        form = value.dtype, value.shape, value.device, value.stride(), value.storage_offset()
        made = self._made.get(_place(value))
        if made is not None or not value.numel():
            return *form, made
        if value.device == self._device:
            return *form, value.data_ptr()
        if value.numel() > _FEW:
            self.refuse("it reads a large tensor on the host, which a replay would not read again")
        return *form, value.flatten().tolist()


def _plain(value: Any) -> Any:
    """A number or another argument, comparable by ``==``: a NaN equals a NaN."""
    if isinstance(value, (int, float, complex, str)):
        return type(value), repr(value)
    return value if isinstance(value, _PLAIN) else type(value)


_PLAIN = (type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _flat(values: Any) -> Iterator[Any]:
    for each in values:
        if isinstance(each, (list, tuple)):
            yield len(each)
            yield from _flat(each)
        else:
            yield each


def _host_random(found: Found, device: torch.device) -> Any:
    """The states of the host's generators: everybody's, and those that the step refers to."""
    own = {path: each for path, each in found.generators.items() if getattr(each, "device", None) != device}
    states = random_states.current(own)
    if device_generator(device) is torch.default_generator:
        del states["torch"]
    return states


def _plain_among(variables: dict[str, Any]) -> dict[str, Any]:
    """Those that may be bound to another value to count."""
    return {name: each for name, each in variables.items() if type(each) in (int, float, bool, str)}


def reached(step: Any) -> tuple[dict[str, Any], list[Any]]:
    """What a step may use: global variables by their names that its functions, and functions and methods which these
    name, refer to; and all objects that were looked at, modules in modules among them."""
    found, looked, pending, seen = {"step": step}, list[Any](), [step], set[int]()
    while pending and len(looked) < _MOST:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        looked.append(value)
        kind = type(value)
        if kind is MethodType:
            pending += [value.__func__, value.__self__]
        elif kind is partial:
            pending += [value.func, *value.args, *value.keywords.values()]
        elif issubclass(kind, torch.nn.Module):
            pending += torch.nn.Module.modules(value)
        for function in [value] if kind is FunctionType else _methods(kind):
            used = {} if _is_of_a_library(function) else _used(function)
            found |= {f"{function.__module__}.{name}": each for name, each in used.items()}
            pending += [*used.values(), *(_held(cell) for cell in function.__closure__ or ())]
    return found, looked


def _methods(kind: type) -> list[FunctionType]:
    classes = [each for each in kind.__mro__ if not _is_of_a_library(each)]
    return [each for cls in classes for each in vars(cls).values() if type(each) is FunctionType]


def _used(function: FunctionType) -> dict[str, Any]:
    """The global variables that a function's code names, but modules, and functions and classes of libraries."""
    codes = [function.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if type(each) is CodeType]
    names = {name for code in codes for name in code.co_names}
    used = {name: each for name, each in function.__globals__.items() if name in names}
    kinds = (ModuleType, BuiltinFunctionType)
    return {n: e for n, e in used.items() if type(e) not in kinds and not (_is_code(e) and _is_of_a_library(e))}


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not set yet
        return None


def _is_code(value: Any) -> bool:
    return type(value) is FunctionType or issubclass(type(value), type)


def _is_of_a_library(value: Any) -> bool:
    """Whether a function or class is none of the user's."""
    module = (
        value.__module__ if type(value) is FunctionType else type.__dict__["__dict__"].__get__(value).get("__module__")
    )
    return str(module).partition(".")[0] in {"builtins", *LIBRARIES}


def is_compiled(step: Any) -> bool:
    """Whether a step, or something that it names, is compiled by ``torch.compile``, which a mode would switch off."""
    return any(
        type(each).__name__ == "OptimizedModule"
        or (type(each) is FunctionType and "_torchdynamo_orig_callable" in vars(each))
        or (issubclass(type(each), torch.nn.Module) and vars(each).get("_compiled_call_impl") is not None)
        for each in reached(step)[1]
    )


def _modes() -> list[Any]:
    """Settings of torch's that decide how operators compute."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return [
        *map(_asked, (torch.get_float32_matmul_precision, torch.are_deterministic_algorithms_enabled)),
        *map(_asked, (cuda.flash_sdp_enabled, cuda.mem_efficient_sdp_enabled, cuda.math_sdp_enabled)),
        *(_asked(partial(getattr, owner, name, None)) for owner in (cudnn, cuda.matmul) for name in _SETTINGS),
    ]


_SETTINGS: tuple[str, ...] = ("enabled", "benchmark", "deterministic", "allow_tf32", "fp32_precision")
_SETTINGS += ("allow_fp16_accumulation", "allow_bf16_reduced_precision_reduction")
_SETTINGS += ("allow_fp16_reduced_precision_reduction",)


def _asked(setting: Callable[[], Any]) -> Any:
    try:
        return setting()
    except Exception as error:  # old and new names of a setting must not be mixed
        return type(error)


def device_generator(device: torch.device) -> torch.Generator:
    """The generator that operators on a device draw from by default."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


def difference(one: Trace, two: Trace) -> str | None:
    """The first operator in which two steps differ, in words; None: they do the same."""
    for before, after in zip_longest(one.calls, two.calls):
        if before != after:
            names = [str(each[0]) if each else "nothing" for each in (before, after)]
            if names[0] != names[1]:
                return f"{names[1]} in place of {names[0]}"
            changed = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]]
            return f"{names[0]}, given {_short(changed[0][1])} after {_short(changed[0][0])}" if changed else names[0]
    return None


def _short(value: Any) -> str:
    return str(value)[:60]
