"""What was found while a script ran, a starting value for its next epoch and its next run: how many batches of each of
its DataLoaders are under way.

It is kept in one file for each script, of JSON: in the folder of compiled kernels, or where ``$ACCEL_TUNE_FILE`` says
(``accel run --tune-file``). It counts only on as many cores as it was found on.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from torch.utils.data import DataLoader

from accel.processes.launch.environment import TUNE_FILE
from accel.system import cores, counters, log
from accel.system.native import object_cache

Found = dict[str, list[int]]
"""By loader: how many batches are under way, and the bytes of the largest one."""

_found: dict[tuple[Any, ...], Found] = {}


def name(loader: DataLoader[Any]) -> str:
    """What tells a loader with a ``BatchSampler`` from the script's others: dataset, length, batches and workers."""
    dataset, sampler = cast("Any", loader.dataset), cast("Any", loader.batch_sampler)
    batches = f"batches of {sampler.batch_size}, {loader.num_workers} workers, prefetch_factor {loader.prefetch_factor}"
    return f"{type(dataset).__qualname__} of {len(dataset)}, {batches}"


def known(loader: str) -> tuple[int, int]:
    """How many batches were under way at last, and the bytes of the largest; zeros: as many as the script says."""
    batches, size = _here().get(loader, (0, 0))
    return batches, size


def keep(loader: str, batches: int, size: int) -> None:
    """Keep what was found, beside what other processes of the script have; 0: as many as the script says."""
    file, here = path(), _here()
    here.pop(loader, None)
    new = {loader: [batches, size]} if batches else {}
    here.update(new)
    if file is None:
        return
    kept = {name: pair for name, pair in _read(file).items() if name != loader} | new
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"cores": _cores(), "loaders": kept}))
        temporary.replace(file)
    except OSError as error:
        log.once(log.WARNING, "what was found about prefetching is not kept: %s", str(error))
        with suppress(OSError):
            temporary.unlink()


def path() -> Path | None:
    """The script's file; None: what is typed in is not recognised again, or there is no folder."""
    if chosen := os.environ.get(TUNE_FILE):
        return Path(chosen).absolute()
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        return None
    with suppress(OSError):
        return object_cache.folder() / f"tuned-{hashlib.sha256(os.fsencode(os.path.abspath(script))).hexdigest()[:16]}"
    return None


def _here() -> Found:
    key = os.environ.get(TUNE_FILE), *_cores()
    if key not in _found:
        file = path()
        _found[key] = {} if file is None else _read(file)
    return _found[key]


def _cores() -> list[Any]:
    return [cores.cores(), *cores.machine()]


def _read(file: Path) -> Found:
    try:
        content = json.loads(file.read_text())
        if content["cores"] != _cores():
            return {}
        loaders: Found = content["loaders"]
        sound = all(type(each) is int and each >= 0 for pair in loaders.values() for each in pair)
        if not sound or {len(pair) for pair in loaders.values()} - {2}:
            raise ValueError("it holds other values")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.once(log.WARNING, "%s is not used: %s", str(file), f"{type(error).__name__}: {error}")
        return {}
    return loaders


counters.show("tuned", lambda: {loader: batches for loader, (batches, _) in _here().items()})
