"""States of DataLoaders: which iterator a state is of, loading one, and proving that a loader goes on exactly."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe

from accel.errors import ResumeError
from accel.resuming import batch_record, random_states, state
from accel.resuming.progress import Checked, Progress, Recorded, found
from accel.resuming.worker import DIFFERS
from accel.system import log
from accel.system.private_names import private

_utils = private("torch._utils", "ExceptionWrapper")


class _Known:
    """What is known of a loader; nothing of its copies.

    Attributes:
        iterators: the progress of those that it has made. loaded: the state that its next iterator goes on from.
        moved: how far iterators had come when it was loaded. seeds: how often torch was seeded until then.
        verify: how many batches are checked then. named: what a warning has named that is not restored.
    """

    def __init__(self) -> None:
        self.iterators: list[weakref.ref[Progress]] = []
        self.loaded: dict[str, Any] | None = None
        self.moved: list[tuple[int, int]] = []
        self.seeds = self.verify = 0
        self.named = set[str]()

    def __reduce__(self) -> Any:
        return _Known, ()


def _known(loader: DataLoader[Any]) -> _Known:
    found: _Known = vars(loader).setdefault("_accel_known", _Known())  # a subclass may have no hash
    return found


_begin_first: weakref.WeakSet[_Known] = weakref.WeakSet()
"""Of loaders whose states were loaded, none of which has begun since. If the first one to do so is between two epochs,
it begins with the random states that were saved, whatever was drawn since, unless torch was seeded; others find those
that the first has left."""


def state_dict(loader: DataLoader[Any], ahead: bool = False) -> dict[str, Any]:
    """Save where this loader stands, as plain types and tensors.

    Between two epochs, and before the first, that is what the next epoch begins with. Where no loader could go on
    exactly, a warning says why, and loading the state raises.

    ``ahead``: whether it is saved before the step that uses its last batch, as Accelerate's loaders do. It is then
    without the random states of this process, which Accelerate saves.
    """
    known, alive = _known(loader), _alive(loader)
    if known.loaded is not None:
        if _moved(alive) == known.moved:
            return state.sealed(known.loaded)
        log.once(log.WARNING, "a DataLoader's state was loaded and not used: the iterator that it had made goes on")
        known.loaded = None
    progress = alive[0] if alive else None
    own = found(loader) if progress is None else progress.found
    level = log.DEBUG if ahead else log.WARNING  # Accelerate saves it with every batch
    unrestored = set(own.unrestored(0)) if progress is None else progress.unrestored()
    if new := unrestored - known.named:
        known.named |= new
        log.note(level, "a DataLoader's state does not have these, which draw or count: %s", ", ".join(sorted(new)))
    why = _why_not(loader, alive)
    if ahead and not why and not loader.num_workers:
        why = "Accelerate makes a batch ahead of each step, in this process: the loader needs a worker"
    if why:
        log.once(level, "a DataLoader's state cannot be resumed from: %s", why)
    return state.of(loader, None if why else progress, None if ahead else own.generators, why)


def load_state_dict(loader: DataLoader[Any], state_dict: dict[str, Any], verify: int = 0) -> None:
    """Have the next ``iter()`` of this loader go on where a state was saved.

    ``verify``: how many batches from there on are recorded twice; where both differ, the loop gets a ``ResumeError``.

    Raises:
        ResumeError: the state is damaged, or of a loader that differs from this one; nothing was changed.
    """
    saved = state.parsed(state_dict)
    if verify and isinstance(loader.dataset, IterableDataset):
        raise ResumeError(f"verify={verify}: the samples of an iterable dataset cannot be made twice")
    state.check(saved["loader"] | saved["versions"], state.described(loader) | state.versions())
    if not saved["running"] and saved["main"]:
        random_states.restore(saved["main"], found(loader).generators)
    loader._iterator = None  # persistent workers, which are elsewhere
    known = _known(loader)
    known.loaded, known.verify = saved, verify
    known.moved, known.seeds = _moved(_alive(loader)), random_states.seeds
    _begin_first.add(known)


def _alive(loader: DataLoader[Any]) -> list[Progress]:
    """The progress of each iterator that has not ended; if there is none, of that whose persistent workers live on."""
    for collect in (gc.collect, list):
        alive = [progress for ref in _known(loader).iterators if (progress := ref()) is not None]
        running = [progress for progress in alive if not progress.ended]
        if len(running) < 2:
            break
        collect()
    return running or (alive[-1:] if loader.persistent_workers else [])


def _moved(alive: Sequence[Progress]) -> list[tuple[int, int]]:
    return [(progress.epochs, progress.handed) for progress in alive]


def _why_not(loader: DataLoader[Any], alive: list[Progress]) -> str:
    """Why no loader could go on exactly from where this one is; "" if one can."""
    if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
        return "torch's data pipes cannot be resumed"
    if not loader.in_order and loader.num_workers:
        return "with in_order=False, which batch comes when is up to the clock"
    if len(alive) > 1:
        return "two iterators of this loader are alive, and a state is of one: delete the other"
    for progress in alive:
        if not progress.is_whole():
            return "a part of the epoch was made while no backend was in force"
        if progress.lost():
            return f"the last batch of worker {progress.lost()[0]} raised an error, or was made without accel"
        try:
            progress.saved_parts()
        except TypeError as error:
            return str(error)
        if progress.rest is not None:
            return "the epoch was begun by another number of ranks"
        if _is_left(loader, progress):
            return "an epoch was left early, and its persistent workers live on: they have made batches ahead"
        behind = progress.epochs > 1 or (progress.ended and loader.persistent_workers)
        if behind and isinstance(loader.dataset, IterableDataset):
            return "persistent workers have earlier epochs of an iterable dataset behind them, which are not replayed"
    return ""


def _is_left(loader: DataLoader[Any], progress: Progress) -> bool:
    """Whether a loop over persistent workers was left early: nothing but the loader refers to its iterator."""
    iterator = loader._iterator
    return iterator is not None and not progress.ended and progress.handed > 0 and sys.getrefcount(iterator) <= _OWN


_OWN = 3  # references: the loader's, a variable's, and the argument's


# -- going on -----------------------------------------------------------------------------------------------


def begun(loader: DataLoader[Any]) -> Progress:
    """The progress of an iterator that this loader makes now.

    Raises:
        ResumeError: the loaded state is of another sampler.
    """
    known = _known(loader)
    saved, verify = known.loaded, 0 if known.loaded is None else known.verify
    if known in _begin_first:
        _begin_first.clear()
        if saved is not None and not saved["running"] and saved["main"] and known.seeds == random_states.seeds:
            random_states.restore(saved["main"] | {"own": {}}, {})
    rest = state.divided_anew(saved, loader) if saved is not None and saved["running"] else None
    if rest is not None:
        saved = known.loaded = None
        text = "a DataLoader goes on with another number of ranks: they divide what is left of the epoch, and draw anew"
        log.note(log.WARNING, text)
    elif saved is not None and saved["running"]:
        state.check(saved["sampler"], state.sampler_of(loader))
    elif saved is not None and not any(saved["workers"]):
        saved = known.loaded = None  # the next epoch begins as any
    progress = Progress(loader, saved, verify, rest)
    known.iterators = [ref for ref in known.iterators if ref() is not None] + [weakref.ref(progress)]
    return progress


def loaded(loader: DataLoader[Any]) -> dict[str, Any] | None:
    """The state that the next iterator of a loader goes on from."""
    return _known(loader).loaded


def finish(loader: DataLoader[Any], iterator: Any, progress: Progress) -> None:
    """Prove that a new iterator goes on where the loaded state was saved, and restore this process's random states.

    Raises:
        ResumeError: it does not; the message says what differs.
    """
    saved, progress.verify = progress.saved, 0
    if saved is None:
        return
    if not progress.workers:
        progress.reposition(iterator, saved)
    prove = _proved_by_replay if progress.replays else _proved_by_workers if progress.workers else _proved_here
    wrong = prove(iterator, progress)
    began = saved["order"]
    is_map = not isinstance(loader.dataset, IterableDataset)
    if began and is_map and progress.drawn() != (began["drawn"], began["digest"]):
        wrong = "the sampler does not give the indices that it gave: its random numbers, or its data, are others"
    if wrong:
        # workers begin with the dataset as it is here, so these can do what they did from the beginning
        if progress.workers and began and not progress.replays and saved["epochs"] == 1:
            _known(loader).loaded = saved | {"replays": True}
        raise ResumeError(f"the loader cannot go on exactly: {wrong}")
    if not any(progress.notes):
        log.note(log.INFO, "a DataLoader goes on before its first batch: there is nothing to prove")
    if saved["running"]:
        random_states.restore(saved["main"] or progress.on_entry, progress.generators)
    progress.saved = None
    _known(loader).loaded = None


def _proved_here(iterator: Any, progress: Progress) -> str:
    """Record the last batch again in this process; return what differs."""
    note, last = progress.notes[0], progress.last
    if note is None:
        return ""
    random_states.restore(note.states, progress.generators)
    with batch_record.noting() as records:
        iterator._dataset_fetcher.fetch(Recorded(last.indices if isinstance(last, Checked) else last))
    return "" if [batch_record.state_digest(each) for each in records[-1:]] == [note.digest] else DIFFERS


def check(iterator: Any, progress: Progress) -> None:
    """Record the batch again that was just made in this process; raise ``ResumeError`` if it differs."""
    if wrong := _proved_here(iterator, progress):
        raise ResumeError(wrong)


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


def _proved_by_replay(iterator: Any, progress: Progress) -> str:
    """Record all batches of the epoch that were handed out; return what differs in the last ones."""
    assert progress.saved is not None
    for _ in range(progress.saved["handed"]):
        if next(iterator, iterator) is iterator:
            return "the epoch ends before"
    for saved, note in zip(progress.saved["workers"], progress.notes, strict=True):
        if saved and (note is None or note.digest != saved["record"] or note.states != saved["states"]):
            return DIFFERS
    return ""
