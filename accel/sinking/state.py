"""What a training step works on: found, compared from group to group, kept and put back."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from accel.resuming import random_states

_PLAIN = (int, float, bool, str, type(None), complex, torch.dtype, torch.device)
_LONGEST, _DEEPEST = 100, 4

Facts = dict[str, Any]
"""What a captured step must find as it was, by names for messages."""


class StepState:
    """The modules, optimizers, generators and tensors that a step uses, and its plain numbers.

    Attributes:
        found: the objects by their names; step: a function, whose variables are watched as well.
    """

    def __init__(self, step: Any, given: Sequence[Any] | None) -> None:
        self._step = step
        roots = _variables("", step, 0) if given is None else _items("state", given, 0)
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
        facts: Facts = {name: (id(e), e.data_ptr(), e.requires_grad) for name, e in self.tensors().items()}
        for name, module in self.modules.items():
            for inner, each in module.named_modules():
                own = vars(each)
                facts |= {f"{name}.{inner}.{n}": value for n, value in own.items() if isinstance(value, _PLAIN)}
        for name, optimizer in self.optimizers.items():
            for place, options in enumerate(optimizer.param_groups):
                facts |= {f"{name}.param_groups[{place}][{n!r}]": v for n, v in options.items() if _is_plain(v)}
            for place, own in enumerate(optimizer.state.values()):
                facts |= {f"{name}.state[{place}][{n!r}]": v for n, v in own.items() if isinstance(v, _PLAIN)}
        facts |= {name: value for name, value in _variables("", self._step, 0) if isinstance(value, _PLAIN)}
        return facts | _modes()


_OBJECTS = (nn.Module, Optimizer, torch.Generator, torch.Tensor)


def changed(before: Facts, after: Facts) -> str | None:
    """The name of something that differs; None if nothing does."""
    return next((n for n in {**before, **after} if n not in before or n not in after or before[n] != after[n]), None)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, (tuple, list)) and all(isinstance(e, _PLAIN) for e in value))


def _modes() -> Facts:
    kinds = ("cuda", "cpu")
    return {
        "autocast": [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds],
        "the autocast cache": torch.is_autocast_cache_enabled(),
        "the gradient mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "the default dtype": torch.get_default_dtype(),
        "deterministic algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
        ),
        "TF32": (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
    }


# -- the variables of a step --------------------------------------------------------------------------------


def _variables(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """What a function's code names, and what that holds: closure, defaults, globals, attributes and items."""
    if isinstance(value, (*_OBJECTS, *_PLAIN)):
        yield name, value
    elif depth > _DEEPEST or isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        return
    elif isinstance(value, types.MethodType):
        yield from _variables(f"{name}self", value.__self__, depth + 1)
        yield from _variables(name, value.__func__, depth + 1)
    elif isinstance(value, partial):
        for inner in (value.func, value.args, value.keywords):
            yield from _variables(name, inner, depth + 1)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value, depth)
    elif isinstance(value, (tuple, list, dict)):
        yield from _items(name, value, depth)
    elif hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in _LIBRARIES:
        for inner, each in list(vars(value).items())[:_LONGEST]:
            yield from _variables(f"{name}.{inner}" if name else inner, each, depth + 1)
        if depth == 0 and isinstance(call := vars(type(value)).get("__call__"), types.FunctionType):
            yield from _of_function(call, depth)


def _of_function(function: types.FunctionType, depth: int) -> Iterator[tuple[str, Any]]:
    if function.__module__.partition(".")[0] in _LIBRARIES:
        return
    named: dict[str, Any] = {
        each: function.__globals__[each] for each in _names(function.__code__) & function.__globals__.keys()
    }
    named |= dict(zip(function.__code__.co_varnames[::-1], (function.__defaults__ or ())[::-1], strict=False))
    for inner, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            named[inner] = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    for inner in sorted(named):
        yield from _variables(inner, named[inner], depth + 1)


def _names(code: types.CodeType) -> set[str]:
    """The global names in a function's code and in functions inside it."""
    return set(code.co_names).union(*(_names(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _items(name: str, values: Any, depth: int) -> Iterator[tuple[str, Any]]:
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for key, each in list(pairs)[:_LONGEST]:
        yield from _variables(f"{name}[{key!r}]", each, depth + 1)


_LIBRARIES = frozenset(("torch", "torchvision", "numpy", "PIL", "accel"))


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
