"""``DataLoader.state_dict`` and ``load_state_dict``, by the names that torch is about to have: where a loader stands in
its epoch, and going on from there exactly (``accel.resuming``). If torch has them, they are left alone.
"""

from __future__ import annotations

from typing import Any, Generic

from torch.utils.data import DataLoader

from accel.hooks import prefetching
from accel.hooks.patch import Addition, Body, Function, Undo
from accel.processes import switch
from accel.resuming import batch_record, loaders, random_states
from accel.resuming.progress import Checked, Progress
from accel.system.caller import frame
from accel.system.private_names import private

_torch = private("torch.utils.data.dataloader", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")


class _Method(Addition):
    """A method that a class has while a backend is in force, also for protocols (``isinstance(loader, Stateful)``)."""

    def put(self, place: Any) -> Undo:
        undo = super().put(place)

        def undo_and_forget() -> None:
            undo()
            kinds: list[Any] = [Generic]
            for kind in kinds:  # protocols remember the classes that had their methods
                kinds += kind.__subclasses__()
                if place[1] in vars(kind) and getattr(kind, "_is_protocol", False):
                    kind._abc_caches_clear()

        return undo_and_forget


def _progress(iterator: Any) -> Progress | None:
    found: Progress | None = iterator.__dict__.get("accel_progress")
    return found


def _init(original: Function, self: Any, loader: DataLoader[Any]) -> None:
    """An iterator's ``__init__``, before its workers are started; those of other libraries stay as they are."""
    known = _torch._SingleProcessDataLoaderIter, _torch._MultiProcessingDataLoaderIter
    if switch.active() is None or type(self) not in known or not isinstance(loader, DataLoader):  # fastai's is none
        original(self, loader)
        return
    progress = loaders.begun(loader)
    original(self, loader)
    if progress.saved is not None:
        self._base_seed = progress.saved["base_seed"]
        if not progress.saved["running"]:  # a persistent iterator's next epoch draws no seed
            random_states.restore(progress.before_iter, progress.generators)
    progress.base_seed = self._base_seed
    progress.follow(self)
    self.accel_progress = progress
    self.accel_depth = prefetching.depth(loader, progress.in_flight())


def _reset(original: Function, self: Any, loader: Any, first_iter: bool = False) -> None:
    """An iterator's ``_reset``, with which an epoch begins."""
    progress = _progress(self)
    if progress is not None:
        progress.epochs += not first_iter
        progress.begin()
    original(self, loader, first_iter)


def _next_index(original: Function, self: Any) -> Any:
    progress = _progress(self)
    return original(self) if progress is None else progress.next_indices(self, original)


def _next_data(original: Function, self: Any) -> Any:
    progress = _progress(self)
    if progress is None:
        return original(self)
    try:
        with batch_record.noting() as records:
            batch = original(self)
    except StopIteration:
        progress.ended = True
        raise
    finally:
        if not progress.workers and not progress.ended:
            progress.hand_out(0, records[-1] if records else None)
    progress.yielded += 1
    if type(progress.last) is Checked and not progress.workers:
        loaders.check(self, progress)
    return batch


def _process_data(original: Function, self: Any, data: Any, worker_idx: int) -> Any:
    progress = _progress(self)
    if progress is not None:
        progress.hand_out(worker_idx)
    return original(self, data, worker_idx)


def made(loader: DataLoader[Any], iterator: Any) -> Any:
    """A new iterator, which goes on where the loaded state was saved, if there is one."""
    progress = _progress(iterator)
    if progress is not None:
        try:
            loaders.finish(loader, iterator, progress)
        except BaseException:
            if progress.workers:
                iterator._shutdown_workers()
            if progress.replays or not (loaders.loaded(loader) or {}).get("replays"):
                raise
            del progress  # so that one iterator of the loader is alive
            iterator = loader._get_iterator()
    return iterator


def _manual_seed(original: Function, seed: Any) -> Any:
    random_states.seeds += 1
    return original(seed)


def _state_dict(self: DataLoader[Any]) -> dict[str, Any]:
    return loaders.state_dict(self, ahead=frame(1).f_globals.get("__name__") == "accelerate.data_loader")


def _load_state_dict(self: DataLoader[Any], state_dict: dict[str, Any], verify: int = 0) -> None:
    loaders.load_state_dict(self, state_dict, verify)


_state_dict.__doc__, _load_state_dict.__doc__ = loaders.state_dict.__doc__, loaders.load_state_dict.__doc__
_LOADER = "torch.utils.data.dataloader"
PATCHES = (
    Body("torch.random.manual_seed", _manual_seed),
    Body(f"{_LOADER}._BaseDataLoaderIter.__init__", _init),
    Body(f"{_LOADER}._BaseDataLoaderIter._reset", _reset),
    Body(f"{_LOADER}._BaseDataLoaderIter._next_index", _next_index),
    Body(f"{_LOADER}._SingleProcessDataLoaderIter._next_data", _next_data),
    Body(f"{_LOADER}._MultiProcessingDataLoaderIter._next_data", _next_data),
    Body(f"{_LOADER}._MultiProcessingDataLoaderIter._process_data", _process_data),
    _Method("torch.utils.data.DataLoader.state_dict", lambda absent: _state_dict),
    _Method("torch.utils.data.DataLoader.load_state_dict", lambda absent: _load_state_dict),
)
