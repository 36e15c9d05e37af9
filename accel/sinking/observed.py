"""One step of a training watched, to see what stands against capturing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from accel.resuming import random_states
from accel.sinking.state import StepState, changed, device_generator

_FILLS = frozenset(("aten::zero_", "aten::fill_", "aten::copy_", "aten::_foreach_zero_", "aten::_foreach_copy_"))
_ASKS = {"aten::_local_scalar_dense": "a tensor's number", "aten::nonzero": "the number of elements"}


class Observer(TorchDispatchMode):
    """A mode that notes which tensors a step writes and reads.

    Attributes:
        reason: why the step cannot be captured; None: nothing was seen.
    """

    def __init__(self, state: StepState, batch: Sequence[torch.Tensor], device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reason: str | None = None
        self._state, self._device = state, device
        gradients = [each.grad for each in state.parameters() if each.grad is not None]
        self._gradients = {_storage(each) for each in gradients}
        self._kept = *state.tensors().values(), *gradients, *batch  # so that no other storage gets a place of theirs
        self._known = set(map(_storage, self._kept))
        self._made: set[int] = set()
        self._before = state.facts(), _host_random(device)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        facts, random = self._before
        name = changed(facts, self._state.facts())
        if name is not None:
            self._refuse(f"it changes {name} (a schedule belongs between the groups, or into a tensor)")
        if _host_random(self._device) != random:
            self._refuse("it draws random numbers on the host: draw them in the loader, or on the device")

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, schema = function._schema.name, function._schema.arguments
        given = {argument.name: value for argument, value in zip(schema, args, strict=False)} | (kwargs or {})
        for argument in schema:
            writes = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(given.get(argument.name)):
                try:
                    self._note(name, tensor, writes)
                except (NotImplementedError, RuntimeError) as error:
                    self._refuse(f"it has a tensor whose memory cannot be watched ({error})".splitlines()[0])
        results = function(*args, **(kwargs or {}))
        with suppress(NotImplementedError, RuntimeError):  # it was refused
            inputs = {_storage(tensor) for value in given.values() for tensor in _tensors(value)}
            self._made |= {_storage(tensor) for tensor in _tensors(results)} - inputs
        return results

    def _note(self, name: str, tensor: torch.Tensor, writes: bool) -> None:
        storage = _storage(tensor)
        if name in _ASKS and tensor.device == self._device:
            self._refuse(f"it asks the device for {_ASKS[name]} (.item(), a condition, indexing by a mask)")
        if storage in self._gradients:
            if not (writes and name in _FILLS):
                self._refuse("it adds to gradients of the step before it: begin it with optimizer.zero_grad()")
            elif tensor.nbytes == tensor.untyped_storage().nbytes():
                self._gradients.discard(storage)
        if writes and storage not in self._made:
            if storage not in self._known:
                what = f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")
                self._refuse(f"it writes to a tensor ({what}) that is not in state=")
            elif tensor.device != self._device:
                self._refuse(
                    "it writes to a tensor on the host, which a replay does not (capturable=True or fused=True)"
                )

    def _refuse(self, reason: str) -> None:
        self.reason = self.reason or reason


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _host_random(device: torch.device) -> Any:
    """The states of the host's generators, of which the device's is none."""
    states = random_states.current({})
    if device_generator(device) is torch.default_generator:
        del states["torch"]
    return states
