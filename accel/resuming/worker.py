"""In a DataLoader worker: what goes along with each batch, and going back to where another worker was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info

from accel.errors import ResumeError
from accel.processes import slot_pool
from accel.resuming import batch_record, random_states
from accel.resuming.progress import Recorded, Restored, arrived, instead
from accel.resuming.random_states import Found

carries = False
"""Whether this process is a worker of torch's own, whose batches carry a note."""

_found: Found | None = None


def begin() -> None:
    """Begin as a worker of torch's own; what its epoch begins with is not for loaders inside of its dataset."""
    global carries
    carries = True
    instead.set((Recorded, 0))


class Carrier:
    """A batch of a worker, which is sent with a note; the main process gets the batch.

    Attributes:
        batch, record: what is sent in its place, and how it was recorded (``batch_record.noted``); set before.
    """

    batch: Any = None
    record = b""

    def __init__(self, fetcher: Any, indices: Any) -> None:
        found, self._fetcher, info = _search(fetcher), fetcher, get_worker_info()
        assert info is not None
        fetcher.accel_batches = number = getattr(fetcher, "accel_batches", 0) + 1  # a fetcher lives for an epoch
        self._place, self._unrestored = (slot_pool.loader_number(), info.id, number), found.unrestored(number)
        self._note = indices, random_states.current(found.generators)

    def check(self, record: Callable[[Any], Any]) -> None:
        """Record the batch again, as ``restored`` does; raise ``ResumeError`` if it differs."""
        if wrong := restored(Restored(*self._note, batch_record.state_digest(self.record)), self._fetcher, record):
            raise ResumeError(wrong)

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (self.batch, *self._place, *self._note, self.record, self._unrestored)


def carrier(fetcher: Any, indices: Any) -> Carrier | None:
    """What notes the batch that a fetcher makes now; None: it carries no note."""
    return Carrier(fetcher, indices) if carries and slot_pool.loader_number() else None


def restored(task: Restored, fetcher: Any, record: Callable[[Any], Any]) -> str:
    """Go back to before a batch and record it; return what differs, "" if nothing does.

    ``record``: makes the batch of indices, without computing it.
    """
    try:
        random_states.restore(task.states, _search(fetcher).generators)
    except ResumeError as error:
        return str(error)
    found = batch_record.state_digest(batch_record.noted(record(task.indices)))
    return "" if found == task.digest else DIFFERS


DIFFERS = (
    "a batch is not recorded as it was: files, transforms or code have changed, or something draws random numbers or "
    "counts where it is not found"
)


def _search(fetcher: Any) -> Found:
    """What this worker's dataset and collate function draw from and count with, looked for once."""
    global _found
    if _found is None:
        collate = getattr(fetcher.collate_fn, "original", fetcher.collate_fn)
        _found = Found({"dataset": fetcher.dataset, "collate_fn": collate})
    return _found
