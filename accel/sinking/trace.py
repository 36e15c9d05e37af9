"""What a training step does, operator by operator: compared from group to group, since a replay repeats it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from accel.resuming import random_states
from accel.resuming.random_states import Found

_ASKS = {"aten::_local_scalar_dense": "a tensor's number", "aten::nonzero": "the number of elements"}
_COPIES = ("aten::copy_", "aten::_to_copy")
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
        self.step, self._device, self._found = step, device, Found({"step": step, **_globals(step, set())})
        self._made: dict[int, tuple[int, int]] = {
            _place(each): (-1, number) for number, each in enumerate(batch) if each.layout is torch.strided
        }
        self._random = _host_random(self._found, device)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if _host_random(self._found, self._device) != self._random:
            self.refuse("it draws random numbers on the host: draw them in the loader, or on the device")
        if counts := self._found.unrestored(2):
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


def _globals(function: Any, seen: set[int]) -> dict[str, Any]:
    """The global objects that a function's code names, and that of functions and methods that it names."""
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function) or id(function) in seen or _is_of_a_library(function):
        return {}
    seen.add(id(function))
    codes = [function.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if inspect.iscode(each)]
    held = [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not None]
    named = {name: function.__globals__[name] for c in codes for name in c.co_names if name in function.__globals__}
    found = {n: each for n, each in named.items() if not (isinstance(each, ModuleType) or _is_of_a_library(each))}
    for each in (*held, *named.values()):
        kind = type(each)
        methods = () if _is_of_a_library(kind) or isinstance(each, type) else vars(kind).values()
        for inner in (each, *methods):
            found |= _globals(inner, seen)
    return found


def _is_of_a_library(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return callable(value) and module.partition(".")[0] in ("builtins", "torch", "torchvision", "numpy", "PIL", "accel")


def _modes() -> tuple[Any, ...]:
    """Settings of torch's that decide how operators compute."""
    backends = torch.backends
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        backends.cudnn.deterministic,
        backends.cudnn.benchmark,
        backends.cudnn.enabled,
        backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.math_sdp_enabled(),
    )


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


def is_compiled(step: Any) -> bool:
    """Whether a step, or something that it names, is compiled by ``torch.compile``, which a mode would switch off."""
    function = getattr(step, "__func__", step)
    named = [step, *getattr(getattr(step, "__self__", step), "__dict__", {}).values()]
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        named += [*found.nonlocals.values(), *found.globals.values()]
    modules = [each for value in named if isinstance(value, torch.nn.Module) for each in value.modules()]
    return any(
        hasattr(each, "_torchdynamo_orig_callable")
        or type(each).__name__ == "OptimizedModule"
        or getattr(each, "_compiled_call_impl", None) is not None
        for each in (*named, *modules)
    )
