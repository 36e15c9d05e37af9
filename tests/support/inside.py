"""What several tests need of accel's private names: each of these is touched here alone.

What a test can ask through public functions, ``accel.stats()``, ``accel.explain`` or the result, it asks there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from accel.backends.cpu import CpuBackend
from accel.backends.cpu import effects as on_host
from accel.backends.cuda import backend as cuda
from accel.backends.cuda import host
from accel.backends.cuda.execution import Execution
from accel.cache import cache as caches
from accel.codec import jpeg, store, stream_index
from accel.codec.files import batch_memory
from accel.hooks import tv_transforms
from accel.hooks.compiled import compositions, program
from accel.lazy import jpeg_file
from accel.processes import slot_pool
from accel.recipes.sources import Files
from accel.runtime import sharing, streams
from accel.runtime.memo import cached
from accel.system import log
from accel.system.native import units

PATIENCE = batch_memory._PATIENCE
"""After so many batches, what is kept of one leaves its memory."""


# -- any function or value ----------------------------------------------------------------------------------


def wrap(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Have ``around`` called instead of ``owner.name``: with the original, then with its arguments."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **named: around(original, *given, **named))


def spy(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., Any] = lambda *given: given) -> Any:
    """A list that grows with every call of ``owner.name``, by what ``note`` says of its arguments."""
    calls: list[Any] = []

    def noting(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        calls.append(note(*given))
        return original(*given, **named)

    wrap(monkeypatch, owner, name, noting)
    return calls


@contextmanager
def anew(function: Any) -> Iterator[None]:
    """A cached function that knows nothing when the block begins, and forgets what it learnt in it."""
    function.cache_clear()
    try:
        yield
    finally:
        function.cache_clear()


# -- decoding -----------------------------------------------------------------------------------------------


def scratch() -> Any:
    """What this thread decodes JPEG files in."""
    return jpeg._scratch


def engine(device: str | torch.device = "cpu") -> Any:
    """A new cuda engine, which has tried nothing yet."""
    return cuda._Engine(torch.empty(0, device=device).device)


def small_files_opened_as_large(monkeypatch: pytest.MonkeyPatch, large: int = 0) -> None:
    """Of files of ``large`` bytes or more, only the beginning is read as they are opened."""
    monkeypatch.setattr(jpeg_file, "_LARGE", large)


def no_store(monkeypatch: pytest.MonkeyPatch, *, tried: bool) -> None:
    """A process without a store of stream indexes; ``tried``: and that makes none."""
    monkeypatch.setattr(store, "_store", None)
    monkeypatch.setattr(store, "_file", None)
    monkeypatch.setattr(store, "_tried", tried)
    monkeypatch.setattr(stream_index, "_full", False)


# -- which code runs ----------------------------------------------------------------------------------------


def no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a plan that a backend supports in part is given to its host backend."""
    monkeypatch.setattr(sharing, "_together", lambda *_: pytest.fail("the host ran it"))


def no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of rows are computed one by one on the host."""
    monkeypatch.setattr(CpuBackend, "_shared", lambda *_: ())


def runs_of_cuda(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each run of the kernels from now on, how many files it decodes."""
    found: list[int] = spy(monkeypatch, cuda.CudaBackend, "_run", lambda _, part, *rest: len(part.decodes))
    return found


def effects_on_the_host(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The effects that the cuda backend has run on the host from now on."""
    found: list[str] = spy(monkeypatch, on_host, "_run", lambda pixels, name, params: name)
    return found


def executions(monkeypatch: pytest.MonkeyPatch) -> list[Execution]:
    """What the device is given from now on."""
    found: list[Execution] = spy(monkeypatch, Execution, "launch", lambda execution: execution)
    return found


def sources_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of files that lie together of which a source is made from now on."""
    found: list[int] = spy(monkeypatch, Files, "_one", lambda files, place: place)
    return found


def streams_of(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Have streams made by ``module`` where torch.cuda would make them, and none be known yet."""
    monkeypatch.setattr(streams, "_module", module)
    monkeypatch.setattr(streams, "_side", {})


# -- what a process knows -----------------------------------------------------------------------------------


def files_of_unknown_size(
    monkeypatch: pytest.MonkeyPatch, guess: float = 0.0, least: int = batch_memory._LEAST
) -> None:
    """Memory for a batch's files is lent for files of ``guess`` bytes, and has at least so many."""
    monkeypatch.setattr(batch_memory, "_each", guess)
    monkeypatch.setattr(batch_memory, "_LEAST", least)


def forget_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pipeline is compiled yet."""
    monkeypatch.setattr(program, "_programs", {})


def restless_from(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """Leave compositions alone that change more often than this."""
    monkeypatch.setattr(compositions, "_RESTLESS", changes)


def try_draws_again(monkeypatch: pytest.MonkeyPatch) -> dict[Any, bool]:
    """Have functions that draw tried when the switch is turned on; whether each draws as torchvision's does."""
    found: dict[Any, bool] = {}
    monkeypatch.setattr(tv_transforms, "_alike", found)
    return found


def forget_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is to be compiled but what is declared from now on."""
    monkeypatch.setattr(units, "_units", [])


def load_libraries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels compiled for the host are looked for at each launch."""
    monkeypatch.setattr(host, "_loaded", host._loaded.__wrapped__)


def forget_messages() -> None:
    """Log what is logged once, once more."""
    log._texts.clear()


# -- caches and shared memory -------------------------------------------------------------------------------


def forget_caches() -> None:
    """Know no cache that is open, as in a process of its own."""
    caches._opened.clear()
    cached._caches.clear()


def close_caches() -> None:
    """Close every cache that this process has."""
    for cache in caches._opened.values():
        cache.close()
    forget_caches()


def slot_sizes(monkeypatch: pytest.MonkeyPatch) -> dict[Any, float]:
    """The bytes of a file that slots have room for, by selection: as yet, of none."""
    found: dict[Any, float] = {}
    monkeypatch.setattr(batch_memory, "_needed", found)
    return found


def slot_pool_of_worker(monkeypatch: pytest.MonkeyPatch, pool: Any = None) -> None:
    """Be a worker that sends in this pool; None: that has not looked for one yet."""
    monkeypatch.setattr(slot_pool, "_pool", pool)


def loader_of(arena: Any) -> Any:
    """What the slot pool knows of a loader with this memory."""
    return slot_pool._Loader(arena)


def end_loader(number: int) -> None:
    """A loader's iterator is gone."""
    slot_pool._end(number)


def loaders() -> dict[int, Any]:
    """What the slot pool knows of loaders that send to, or are, this process, by number."""
    return slot_pool._known
