"""``persistent_workers=True``: workers that live on get the backend that is in force at each ``iter()``.

torch tells each worker through its queue that a new epoch begins. The queues of a loader that was used under accel
replace that message, if the backend has changed since the last one, by one that also throws the worker's switch; also
once accel is switched off, when nothing of torch's is replaced any more.
"""

from __future__ import annotations

import pickle
from functools import cache, partial, wraps
from multiprocessing.reduction import ForkingPickler
from typing import Any

from accel.backend import host_of
from accel.hooks import multiprocessing
from accel.hooks.patch import Attribute, Function
from accel.processes import slot_pool, switch
from accel.recipes.options import STEPS_ASIDE, Selection
from accel.system.private_names import private

_worker = private("torch.utils.data._utils.worker", "_ResumeIteration")


@cache
def _following(kind: type) -> type:
    """A worker's queue of a kind, which throws the worker's switch if another selection is in force there.

    ``accel_selection``: what is in force there. ``accel_number``: the number of its loader, if it was started without
    accel and was told nothing yet, else 0. A class, as a function of its own would be a cycle that keeps a loader's
    queues when it is gone.
    """

    def put(self: Any, item: Any, *args: Any, **kwargs: Any) -> None:
        if type(item) is _worker._ResumeIteration and (selection := switch.current()) != self.accel_selection:
            if not selection.steps_aside:
                host_of(selection).prepare()
            number = self.accel_number
            memory = multiprocessing.shared_memory() if number else ()
            # pickled here, as the queue's thread would lose an error
            item = _Resuming(item, bytes(ForkingPickler.dumps(partial(_throw, selection, number, *memory))))
            self.accel_selection, self.accel_number = selection, 0
        inherited(self, item, *args, **kwargs)

    inherited: Any = kind.put  # type: ignore[attr-defined]
    return type(kind.__name__, (kind,), {"put": put})


class _Resuming:
    """torch's message, which throws the worker's switch where it is unpickled."""

    def __init__(self, message: Any, throw: bytes) -> None:
        self._message, self._throw = message, throw

    def __reduce__(self) -> tuple[Any, ...]:
        return _resumed, (self._message, self._throw)


def _resumed(message: Any, throw: bytes) -> Any:
    pickle.loads(throw)()
    return message


def _throw(selection: Selection, number: int, *memory: Any) -> None:
    """Throw the switch of this worker; one that was started without accel gets its loader's number, and what this
    process's family shares."""
    if number:
        slot_pool.join(number, None)
        multiprocessing.enter(selection, *memory)
    switch.replace(selection)


def _resetting(original: Function) -> Function:
    """An iterator's ``_reset``, with which an epoch begins."""

    @wraps(original)
    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if self._persistent_workers and not hasattr(self._index_queues[0], "accel_selection"):
            began = switch.active() if first_iter else None
            number = 0 if began is not None else slot_pool.new_number()
            for queue in self._index_queues:
                queue.accel_selection, queue.accel_number = began or switch.select(STEPS_ASIDE, {}), number
                queue.__class__ = _following(queue.__class__)
        original(self, loader, first_iter)

    return _reset


PATCHES = (Attribute("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._reset", _resetting),)
