"""What a training step works on: found, compared from group to group, kept and put back."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from accel.resuming import random_states

_PLAIN = (int, float, bool, str, bytes, type(None), complex, torch.dtype, torch.device)
_LONGEST, _DEEPEST = 10_000, 4  # items of a container that are looked into, and levels

Facts = dict[str, tuple[Any, ...]]
"""What a captured step must find as it was, by names for messages: plain values, and objects that must be the same."""


class StepState:
    """The modules, optimizers, generators and tensors that a step uses, and its plain numbers.

    Attributes:
        found: the objects by their names; step: a function, whose variables are watched as well.
    """

    def __init__(self, step: Any, given: Sequence[Any] | None) -> None:
        self._step = step
        roots = variables("step", step if given is None else [*given])
        self.found = {name: each for name, each in roots if isinstance(each, _OBJECTS)}
        self.modules = {name: each for name, each in self.found.items() if isinstance(each, nn.Module)}
        self.optimizers = {name: each for name, each in self.found.items() if isinstance(each, Optimizer)}
        self.generators = [each for each in self.found.values() if isinstance(each, torch.Generator)]

    def parameters(self) -> list[torch.Tensor]:
        """All tensors that may have a gradient, each once."""
        every: list[torch.Tensor] = [each for module in self.modules.values() for each in module.parameters()]
        every += [
            each for optimizer in self.optimizers.values() for g in optimizer.param_groups for each in g["params"]
        ]
        every += [each for each in self.found.values() if isinstance(each, torch.Tensor) and each.is_leaf]
        return list({id(each): each for each in every}.values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors of the state by their names, without gradients."""
        named: dict[str, torch.Tensor] = {n: each for n, each in self.found.items() if isinstance(each, torch.Tensor)}
        for name, module in self.modules.items():
            named |= {f"{name}.{inner}": each for inner, each in module.named_parameters()}
            named |= {f"{name}.{inner}": each for inner, each in module.named_buffers()}
        for name, optimizer in self.optimizers.items():
            for place, options in enumerate(optimizer.param_groups):
                named |= {f"{name}.param_groups[{place}][{n}]": e for n, e in options.items() if _is_tensor(e)}
            for place, own in enumerate(optimizer.state.values()):
                named |= {f"{name}.state[{place}][{n!r}]": each for n, each in own.items() if _is_tensor(each)}
        return named

    def facts(self) -> Facts:
        """What must not change for a captured step to go on: where the tensors lie, modes, and plain numbers."""
        facts: Facts = {name: (value,) for name, value in variables("step", self._step)}
        facts |= {name: (each, each.data_ptr(), each.requires_grad) for name, each in self.tensors().items()}
        for name, module in self.modules.items():
            for inner, each in module.named_modules():
                facts[f"{name}.{inner}"] = each, type(each).forward
                facts |= {f"{name}.{inner}.{n}": _fact(v) for n, v in vars(each).items() if n not in _TENSORS}
        for name, optimizer in self.optimizers.items():
            for place, options in enumerate(optimizer.param_groups):
                facts |= {f"{name}.param_groups[{place}][{n!r}]": _fact(v) for n, v in options.items()}
            for place, own in enumerate(optimizer.state.values()):
                facts |= {f"{name}.state[{place}][{n!r}]": _fact(v) for n, v in own.items()}
        return facts | _modes()


_OBJECTS = (nn.Module, Optimizer, torch.Generator, torch.Tensor)


def changed(before: Facts, after: Facts) -> str | None:
    """The name of something that differs; None if nothing does."""
    return next((n for n in {**before, **after} if not _alike(before.get(n), after.get(n))), None)


def _alike(one: tuple[Any, ...] | None, two: tuple[Any, ...] | None) -> bool:
    if one is None or two is None or len(one) != len(two):
        return False
    return all(
        a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b) for a, b in zip(one, two, strict=True)
    )


_TENSORS = ("_parameters", "_buffers", "_modules")


def _fact(value: Any) -> tuple[Any, ...]:
    """A value, or what is in it: hooks, padding, parameters."""
    if isinstance(value, (tuple, list)):
        return tuple(value)
    return tuple(value.values()) if isinstance(value, dict) else (value,)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _modes() -> Facts:
    return {
        "autocast": tuple(of(kind) for of in (torch.is_autocast_enabled, torch.get_autocast_dtype) for kind in _KINDS),
        "the autocast cache": (torch.is_autocast_cache_enabled(),),
        "the gradient mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "the default dtype": (torch.get_default_dtype(),),
        "deterministic algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
        ),
        "TF32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
    }


_KINDS = ("cuda", "cpu")


# -- the variables of a step --------------------------------------------------------------------------------


def variables(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value, and what it holds or its code names: closure, defaults, globals, attributes and items."""
    return _variables(name, value, 0, set())


def _variables(name: str, value: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):  # made anew each time it is asked for
        inner = {f"{name}.__self__": value.__self__, f"{name}.__func__": value.__func__}
    else:
        yield name, value
        if id(value) in seen or depth > _DEEPEST or isinstance(value, (*_OBJECTS, *_PLAIN)):
            return
        seen.add(id(value))
        inner = _held(name, value, depth)
    for each in itertools.islice(inner.items(), _LONGEST):
        yield from _variables(*each, depth + 1, seen)


def _held(name: str, value: Any, depth: int) -> dict[str, Any]:
    """What an object holds, by names."""
    if isinstance(value, partial):
        return {f"{name}.{inner}": getattr(value, inner) for inner in ("func", "args", "keywords")}
    if isinstance(value, torch.amp.GradScaler):
        return {f"{name}.{n}": each for n, each in vars(value).items() if isinstance(each, (torch.Tensor, *_PLAIN))}
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if isinstance(value, (tuple, list, dict)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {f"{name}[{key!r}]": each for key, each in itertools.islice(pairs, _LONGEST)}
    if isinstance(value, np.ndarray):
        return {f"{name}.tobytes()": value.tobytes() if value.nbytes <= _LONGEST else None}
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, types.ModuleType) or kind.__module__.partition(".")[0] in _LIBRARIES:
        return {}
    own = {each: getattr(value, each, None) for cls in kind.__mro__ for each in _slots(cls)} | dict(_attributes(value))
    held = {f"{name}.{inner}": each for inner, each in own.items()}
    call = vars(kind).get("__call__")
    return held | (_of_function(call) if depth == 0 and isinstance(call, types.FunctionType) else {})


def _attributes(value: Any) -> Mapping[str, Any]:
    own = getattr(value, "__dict__", {})
    return {n: each for n, each in own.items() if isinstance(each, _PLAIN)} if isinstance(value, type) else own


def _slots(cls: type) -> tuple[str, ...]:
    names = vars(cls).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(each for each in names if not each.startswith("__"))


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    if function.__module__.partition(".")[0] in _LIBRARIES:
        return {}
    code, known = function.__code__, function.__globals__
    named: dict[str, Any] = {each: known[each] for each in sorted(_names(code) & known.keys())}
    named |= dict(zip(code.co_varnames[: code.co_argcount][::-1], (function.__defaults__ or ())[::-1], strict=False))
    named |= function.__kwdefaults__ or {}
    for inner, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is not set yet
            named[inner] = cell.cell_contents
    return named


def _names(code: types.CodeType) -> set[str]:
    """The global names in a function's code and in functions inside it."""
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))


_LIBRARIES = frozenset(("builtins", "torch", "torchvision", "numpy", "PIL", "accel"))


# -- kept, and put back --------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """A step's state at one moment."""

    values: list[tuple[torch.Tensor, torch.Tensor]]  # each tensor, and a copy of its values
    gradients: list[tuple[torch.Tensor, torch.Tensor | None]]
    optimizers: list[tuple[Any, dict[Any, dict[Any, Any]]]]  # which state each has, by parameter
    device_random: list[tuple[torch.Generator, torch.Tensor]]
    host_random: random_states.States


def keep(state: StepState, device: torch.device) -> Kept:
    """Copy the state, gradients and random generators."""
    gradients = [(each, each.grad) for each in state.parameters()]
    every = [*state.tensors().values(), *(gradient for _, gradient in gradients if gradient is not None)]
    return Kept(
        [(each, each.detach().clone()) for each in {id(each): each for each in every}.values()],
        gradients,
        [(each, {key: dict(own) for key, own in each.state.items()}) for each in state.optimizers.values()],
        [(each, each.get_state()) for each in (device_generator(device), *state.generators)],
        random_states.current({}),
    )


def put_back(kept: Kept) -> None:
    """Restore everything as it was; what was absent is absent again."""
    for optimizer, states in kept.optimizers:
        for key in [*optimizer.state]:
            if key not in states:
                del optimizer.state[key]
        for key, own in states.items():
            optimizer.state[key].clear()
            optimizer.state[key].update(own)
    with torch.no_grad():
        for tensor, values in kept.values:
            tensor.detach().copy_(values)
    for tensor, gradient in kept.gradients:
        tensor.grad = gradient
    random_states.restore(kept.host_random, {})
    for generator, words in kept.device_random:
        generator.set_state(words)


def differs(kept: Kept, other: Kept) -> bool:
    """Whether the values of two moments differ in any bit, or their random states."""
    if len(kept.values) != len(other.values) or kept.host_random != other.host_random:
        return True
    pairs = [(one, two) for (_, one), (_, two) in zip(kept.values, other.values, strict=True)]
    pairs += [(one, two) for (_, one), (_, two) in zip(kept.device_random, other.device_random, strict=True)]
    return not all(same_bits(one, two) for one, two in pairs)


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors are equal; a NaN equals a NaN."""
    return (
        one.shape == two.shape and one.dtype == two.dtype and bool(((one == two) | ((one != one) & (two != two))).all())
    )


def device_generator(device: torch.device) -> torch.Generator:
    """The generator that operators on a device draw from by default."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
