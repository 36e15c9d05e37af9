"""A stand-in for a GPU on which a training step is captured and replayed: for ``accel.sink`` without a GPU.

A captured step is a *tape*: the calls of ATen's operators, with the tensors and numbers that they had. A replay runs
the tape, never the Python again, so that what was frozen shows. Work runs late: copies, replays and what is read of
their results wait on a stream (``rig.deferred_device``) until an operator needs them. Random numbers of the device come
from a generator of its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from accel.runtime import streams
from accel.sinking import capture, trace
from rig.deferred_device import DeferredStreams

REFUSED = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2")
"""Operators for which the host waits."""


class TapeDevice(DeferredStreams):
    """Attributes: random: the generator of the device's random numbers. replays: how many were run."""

    def __init__(self) -> None:
        super().__init__()
        self.random = _Random()
        self.random.finish = self.finish
        self.replays = 0
        self._own: dict[int, weakref.ref[torch.Tensor]] = {}

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Random numbers come from the device's generator."""
        host, random = torch.default_generator.get_state(), torch.Generator
        torch.default_generator.set_state(random.get_state(self.random))
        try:
            yield
        finally:
            random.set_state(self.random, torch.default_generator.get_state())
            torch.default_generator.set_state(host)

    def transferred(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        """In place of ``streams.transferred``: a copy that is made late."""
        return self.copied(tensor)

    def copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the device, made late; until then it is spoilt."""
        copy = _spoilt(tensor)
        self.own(copy)
        self.current_stream().put(lambda: _copy(copy, tensor))
        return copy

    def own(self, tensor: torch.Tensor) -> None:
        """Have a tensor lie on the device."""
        self._own[_place(tensor)] = weakref.ref(tensor)

    def owns(self, tensor: torch.Tensor) -> bool:
        found = None if tensor.is_sparse else self._own.get(_place(tensor))
        return found is not None and found() is not None

    def late(self) -> TorchDispatchMode:
        """A mode for the thread that trains."""
        return _Late(self)

    def finish(self) -> None:
        """Run all work of this thread's current stream."""
        stream = self.current_stream()
        with _disable_current_modes():
            stream.run_to(stream.queued)

    def graph(self, step: Callable[[], Any], device: torch.device, generators: Sequence[torch.Generator]) -> Tape:
        """In place of ``accel.sinking.capture.Graph``."""
        self.finish()
        return Tape(self, step)


@contextmanager
def stand_in() -> Iterator[TapeDevice]:
    """Have the host behave as such a device."""
    device = TapeDevice()
    patches: list[tuple[Any, str, Any]] = [
        (streams, "_module", device),
        (streams, "_side", {}),
        (streams, "transferred", device.transferred),
        (torch.Tensor, "record_stream", lambda tensor, stream: None),
        (capture, "Graph", device.graph),
        (trace, "device_generator", lambda _: device.random),
    ]
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(device.late())
        yield device


class _Random(torch.Generator):
    """A generator whose state is known when the work before has run."""

    finish: Callable[[], None]

    def get_state(self) -> torch.Tensor:
        self.finish()
        return super().get_state()

    def set_state(self, new_state: torch.Tensor) -> torch.Generator:
        self.finish()
        return super().set_state(new_state)


class _Late(TorchDispatchMode):
    """Copies of the device's tensors wait on the current stream; all other operators wait for it."""

    supports_higher_order_operators = True

    def __init__(self, device: TapeDevice) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device, self._process = device, os.getpid()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if os.getpid() != self._process:  # a forked worker is on the host
            return function(*args, **(kwargs or {}))
        if not hasattr(function, "_schema"):
            self._device.finish()
            return function(*args, **(kwargs or {}))
        name, stream = function._schema.name, self._device.current_stream()
        if name == "aten::copy_" and self._device.owns(args[1]):
            stream.put(lambda: _copy(args[0], args[1]))
            return args[0]
        if name == "aten::clone" and self._device.owns(args[0]):
            return self._device.copied(args[0])
        if not function.is_view:
            self._device.finish()
        return function(*args, **(kwargs or {}))


class Tape:
    """A captured step; see ``accel.sinking.capture.Graph``."""

    def __init__(self, device: TapeDevice, step: Callable[[], Any]) -> None:
        self._device = device
        recording = _Recording()
        random = device.random.get_state()
        try:
            with _disable_current_modes(), recording:
                self.result = step()
        finally:
            recording.put_back()
            device.random.set_state(random)
        self._calls = recording.calls
        for each in _tensors([*self.result.values()] if isinstance(self.result, dict) else [self.result]):
            device.own(each)

    def replay(self) -> None:
        self._device.current_stream().put(self._run)

    def _run(self) -> None:
        self._device.replays += 1
        with _disable_current_modes(), torch.no_grad(), self._device.drawing():
            for function, args, kwargs, made in self._calls:
                results = function(*args, **kwargs)
                for own, new in zip(_tensors([made]), _tensors([results]), strict=True):
                    if _place(own) != _place(new):
                        own.copy_(new)


class _Recording(TorchDispatchMode):
    """Attributes: calls: operators with their arguments and results, but those that only make views.

    It refers to memory, not to the step's own tensors: autograd takes a gradient over if nobody else refers to it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, function._schema.name
        by_mask = name == "aten::index" and any(e is not None and e.dtype == torch.bool for e in args[1])
        if name in REFUSED or by_mask:
            raise RuntimeError(f"operation not permitted when stream is capturing ({name})")
        inputs = [*_tensors([*args, *kwargs.values()])]
        for each in inputs:
            if _place(each) not in self._made | self._before.keys():
                self._before[_place(each)] = _alias(each), each.detach().clone()
        results = function(*args, **kwargs)
        if not function.is_view:
            self.calls.append((function, *map(_aliases, (args, kwargs, results))))
        self._made |= {_place(each) for each in _tensors(results)} - self._before.keys()
        return results

    def put_back(self) -> None:
        """A capture runs nothing: restore what the step has written."""
        with torch.no_grad():
            for tensor, values in self._before.values():
                tensor.copy_(values)


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor on the same memory."""
    if tensor.layout is not torch.strided:
        return tensor
    place = tensor.storage_offset(), tensor.size(), tensor.stride()
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage(), *place)


def _aliases(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _alias(value)
    if isinstance(value, dict):
        return {name: _aliases(each) for name, each in value.items()}
    return type(value)(map(_aliases, value)) if isinstance(value, (list, tuple)) else value


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _spoilt(like: torch.Tensor) -> torch.Tensor:
    with _disable_current_modes():
        made = torch.empty_like(like)
        made.untyped_storage().fill_(0xEE)  # type: ignore[attr-defined]
    return made


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    with _disable_current_modes(), torch.no_grad():
        target.copy_(source)
