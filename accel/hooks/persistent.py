"""``persistent_workers=True``: workers that live on get the backend that is in force at each ``iter()``.

torch tells each worker through its queue that a new epoch begins. The queues of a loader that was used under accel
replace that message, if the backend has changed since the last one, by one that also throws the worker's switch; also
once accel is switched off, when nothing of torch's is replaced any more.
"""

from __future__ import annotations

import pickle
import weakref
from functools import partial, wraps
from multiprocessing.reduction import ForkingPickler
from typing import Any

from accel.backend import host_of
from accel.codec import store
from accel.hooks import multiprocessing
from accel.hooks.patch import Attribute, Function
from accel.processes import slot_pool, switch
from accel.recipes.options import STEPS_ASIDE, Selection
from accel.system import counters, shared_list
from accel.system.private_names import private
from accel.system.timing import measuring

_worker = private("torch.utils.data._utils.worker", "_ResumeIteration")


class _Put:
    """``put`` of a worker's queue.

    Args:
        selection: what is in force in the worker. number: that of its loader, if it was started without accel, else 0.
    """

    def __init__(self, queue: Any, selection: Selection, number: int) -> None:
        self._queue, self._put = weakref.ref(queue), type(queue).put  # no cycle: a loader's queues end with it
        self._selection, self._number = selection, number

    def __call__(self, item: Any, *args: Any, **kwargs: Any) -> None:
        if type(item) is _worker._ResumeIteration and (selection := switch.current()) != self._selection:
            if not selection.steps_aside:
                host_of(selection).prepare()
            shared: tuple[Any, ...] = ()
            if self._number:
                shared = counters.share(), measuring.share(), shared_list.sent(), store.sent()
            # pickled here, as the queue's thread would lose an error
            item = _Resuming(item, bytes(ForkingPickler.dumps(partial(_throw, selection, self._number, *shared))))
            self._selection, self._number = selection, 0
        self._put(self._queue(), item, *args, **kwargs)


class _Resuming:
    """torch's message, which throws the worker's switch where it is unpickled."""

    def __init__(self, message: Any, throw: bytes) -> None:
        self._message, self._throw = message, throw

    def __reduce__(self) -> tuple[Any, ...]:
        return _resumed, (self._message, self._throw)


def _resumed(message: Any, throw: bytes) -> Any:
    pickle.loads(throw)()
    return message


def _throw(selection: Selection, number: int, *shared: Any) -> None:
    """Throw the switch of this worker; one that was started without accel gets its loader's number, and what this
    process's family shares."""
    if number:
        slot_pool.join(number, None)
        multiprocessing.enter(selection, *shared)
    switch.replace(selection)


def _resetting(original: Function) -> Function:
    """An iterator's ``_reset``, with which an epoch begins."""

    @wraps(original)
    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if self._persistent_workers and not isinstance(vars(self._index_queues[0]).get("put"), _Put):
            began = switch.active() if first_iter else None
            number = 0 if began is not None else slot_pool.new_number()
            for queue in self._index_queues:
                queue.put = _Put(queue, began or switch.select(STEPS_ASIDE, {}), number)
        original(self, loader, first_iter)

    return _reset


PATCHES = (Attribute("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._reset", _resetting),)
