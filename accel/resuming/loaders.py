"""States of DataLoaders: which iterator a state is of, loading one, and proving that a loader goes on exactly."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from torch.utils.data import DataLoader, IterDataPipe, MapDataPipe

from accel.errors import ResumeError
from accel.resuming import batch_record, random_states, state
from accel.resuming.progress import Progress, Recorded
from accel.resuming.worker import DIFFERS
from accel.system import log
from accel.system.private_names import private

_utils = private("torch._utils", "ExceptionWrapper")

_iterators: weakref.WeakKeyDictionary[DataLoader[Any], list[weakref.ref[Progress]]] = weakref.WeakKeyDictionary()
_loaded: weakref.WeakKeyDictionary[DataLoader[Any], dict[str, Any]] = weakref.WeakKeyDictionary()


def state_dict(loader: DataLoader[Any]) -> dict[str, Any]:
    """Save where this loader stands, as plain types and tensors.

    Between two epochs, and before the first, that is what the next epoch begins with.

    Raises:
        ResumeError: it could not go on exactly from here; the message says why.
    """
    if (loaded := _loaded.get(loader)) is not None:
        return random_states.plain(loaded)  # type: ignore[no-any-return]
    _refuse(loader)
    progress = _running(loader)
    found = Progress(loader, None).found if progress is None else progress.found
    if found.others:
        text = "a DataLoader's state does not have these, which cannot be saved: %s"
        log.once(log.WARNING, text, ", ".join(found.others))
    return state.of(loader, progress, found.generators)


def load_state_dict(loader: DataLoader[Any], state_dict: dict[str, Any]) -> None:
    """Have the next ``iter()`` of this loader go on where a state was saved.

    Raises:
        ResumeError: the state is damaged, or of a loader that differs from this one; nothing was changed.
    """
    saved = state.parsed(state_dict)
    _refuse(loader)
    state.check_loader(saved, loader)
    if not saved["running"]:
        # behind an epoch's end, what the script draws until the next ``iter()`` it draws anew
        random_states.restore(saved["main"], Progress(loader, None).found.generators)
    _loaded[loader] = saved
    loader._iterator = None  # persistent workers, which are elsewhere


def _refuse(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
        raise ResumeError("torch's data pipes cannot be resumed")
    if not loader.in_order and loader.num_workers:
        raise ResumeError("with in_order=False, which batch comes when is up to the clock, so nothing can be resumed")


def _running(loader: DataLoader[Any]) -> Progress | None:
    """The progress of the iterator that has not ended, or of persistent workers that it left; None: there is none."""
    for attempt in range(2):
        alive = [progress for ref in _iterators.get(loader, ()) if (progress := ref()) is not None]
        running = [progress for progress in alive if not progress.ended]
        if len(running) < 2:
            break
        if not attempt:
            gc.collect()
    else:
        raise ResumeError("two iterators of this loader are alive, and a state is of one: delete the other")
    return running[0] if running else next(iter(alive), None) if loader.persistent_workers else None


# -- going on -----------------------------------------------------------------------------------------------


def begun(loader: DataLoader[Any]) -> Progress:
    """The progress of an iterator that this loader makes now.

    Raises:
        ResumeError: the loaded state is of another sampler.
    """
    saved = _loaded.get(loader)
    if saved is not None and saved["running"]:
        state.check_sampler(saved, loader)
    elif saved is not None and not any(saved["workers"]):
        saved = _loaded.pop(loader) and None  # the next epoch begins as any
    progress = Progress(loader, saved)
    known = _iterators.setdefault(loader, [])
    known[:] = [ref for ref in known if ref() is not None]
    known.append(weakref.ref(progress))
    return progress


def finish(loader: DataLoader[Any], iterator: Any, progress: Progress) -> None:
    """Prove that a new iterator goes on where the loaded state was saved, and restore this process's random states.

    Raises:
        ResumeError: it does not; the message says what differs.
    """
    saved = progress.saved
    if saved is None:
        return
    if not progress.workers:
        progress.reposition(iterator, saved)
    wrong = _proved_by_workers(iterator, progress) if progress.workers else _proved_here(iterator, progress)
    order, began = progress.order, saved["order"]
    if began is not None and order is not None and (order.drawn, order.digest()) != (began["drawn"], began["digest"]):
        wrong = "the sampler does not give the indices that it gave: its random numbers, or its data, are others"
    if wrong:
        raise ResumeError(f"the loader cannot go on exactly: {wrong}")
    if not any(progress.notes):
        log.note(log.INFO, "a DataLoader goes on before its first batch: there is nothing to prove")
    if saved["running"]:
        random_states.restore(saved["main"], progress.found.generators)
    progress.saved = None
    _loaded.pop(loader, None)


def _proved_here(iterator: Any, progress: Progress) -> str:
    """Record the last batch again in this process; return what differs."""
    note = progress.notes[0]
    if note is None:
        return ""
    random_states.restore(note.states, progress.found.generators)
    with batch_record.noting() as noted:
        iterator._dataset_fetcher.fetch(Recorded(progress.last))
    return "" if noted.record is not None and batch_record.state_digest(noted.record) == note.digest else DIFFERS


def _proved_by_workers(iterator: Any, progress: Progress) -> str:
    """Wait for what the workers say of their last batches; return what differs.

    Batches that come in between wait as those do that come out of order.
    """
    wrong = ""
    for _ in range(sum(note is not None for note in progress.notes)):
        while (arrived := iterator._get_data())[0] >= 0:
            iterator._task_info[arrived[0]] += (arrived[1],)
            iterator._tasks_outstanding -= 1
        if isinstance(arrived[1], _utils.ExceptionWrapper):
            arrived[1].reraise()
        wrong = wrong or arrived[1]
    return wrong
