"""Starting and stopping to measure, and collecting as data what this process and its loaders' workers measured."""

from __future__ import annotations

import linecache
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from accel.codec import store
from accel.processes import switch
from accel.profiling import loading, trial
from accel.profiling.flow import flow
from accel.profiling.loader_records import LoaderRecords, kind
from accel.profiling.measured import (
    MAIN_STAGES,
    STAGES,
    WORKER_STAGES,
    Machine,
    Measured,
    Process,
    Sample,
    Spent,
    total,
)
from accel.runtime.streams import usable
from accel.system import counters
from accel.system.cores import cores
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import COUNT, CPU_NS, CPU_OF_NS, HISTOGRAM, NS
from accel.system.timing.measuring import ProcessRow

ANOTHER = "cpu"
"""The backend that is tried if none of accel's is in force."""
_before: tuple[dict[str, Any], Any, float] = {}, None, 0.0
_there: set[int] = set()
"""The child processes that existed when measuring began."""


def start(*, trace: bool = False, within: Path | None = None) -> None:
    """Measure from now on, in this process and those that its loaders start, or have started under a backend.

    ``trace``: also record when each stage began, for a trace. ``within``: the folder to keep that in until the end, by
    default the system's for temporary files; it stays there if this process is killed.

    Raises:
        RuntimeError: something is measured already.
    """
    global _before
    folder = tempfile.mkdtemp(prefix="accel-trace-", dir=within) if trace else ""
    try:
        measuring.start(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _before = counters.stats(), _busy(), time.perf_counter()
    _there.clear()
    _there.update(each.pid for each in active_children() if each.pid is not None)


def stop(say: Callable[[str], object] | None = None) -> Measured:
    """Stop measuring and return what was measured. Under "torchvision" accel's own backend is tried on some of the
    samples; ``say`` is called with a text before that begins."""
    folder = measuring.folder()
    with undisturbed():
        measured = _measured(measuring.stop)
    if folder:
        measured.events = _events(folder, {(each.loader, each.worker): each.pid for each in measured.processes})
        shutil.rmtree(folder, ignore_errors=True)
    its = flow(measured)
    if its is not None:
        try_another(its.loader.number, say)
        found = loading.records.trials.get(its.loader.number)
        measured.trials = {} if found is None else {ANOTHER: found}
    loading.records.samples.clear()  # which keep datasets alive
    return measured


def try_another(number: int, say: Callable[[str], object] | None = None) -> None:
    """Try accel's own backend on samples of a loader, if none of accel's is in force. Of similar loaders only one is
    tried, as a script may make a new one for each epoch."""
    records = loading.records
    samples = records.samples.get(number)
    stepped_aside = (records.selection or switch.current()).steps_aside and switch.current().steps_aside
    if not stepped_aside or samples is None or number in records.trials:
        return
    its = kind(records.loaders[number])
    like = [each for each in records.trials if kind(records.loaders[each]) == its]
    if like:
        records.trials[number] = records.trials[like[0]]
    else:
        records.trials[number] = trial.measure(samples, ANOTHER, say)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Postpone torch's error that a worker has died, which its signal handler would raise inside the block.

    The handler is replaced, as a signal that this thread blocks is delivered to another, and still handled here.
    """
    child = getattr(signal, "SIGCHLD", None)
    before = None if child is None else signal.getsignal(child)
    if child is None or not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(child, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        signal.signal(child, before)
        if came:
            before(*came[-1])


def so_far() -> Measured:
    """All that was measured up to now."""
    measuring.flush()
    return _measured(measuring.rows_of)


def _measured(collected: Callable[[], list[ProcessRow]]) -> Measured:
    records = loading.records
    records.unfinished = max((clock.inside for clock in clocks.threads if clock.stepping), default=0)
    selection = records.selection or switch.current()
    rows = records.grouped(collected())
    processes = [_process(row, records) for row in rows]
    options = {} if selection.steps_aside else vars(selection.options)
    for row, process in zip(rows, processes, strict=True):
        drawn = row.header["draws"]
        if drawn and process.loader is not None:
            loader = records.loaders[process.loader]
            loader.draws = bool(loader.draws) or drawn > 1
    return Measured(
        backend=selection.name,
        options={
            name: repr(value) if not isinstance(value, (int, str, type(None))) else value
            for name, value in options.items()
        },
        seconds=records.seconds,
        processes=processes,
        loaders=list(records.loaders),
        batches=list(records.batches),
        machine=machine(),
        samples=[sample for row in rows for sample in _samples(row)],
        failed=records.failed,
        backends=[name for name, missing in switch.image_backends().items() if missing is None],
        counters=_since(counters.stats(), _before[0]),
    )


def _process(row: ProcessRow, records: LoaderRecords) -> Process:
    header, pid = row.header, row.header["pid"]
    is_main = pid == os.getpid()
    loader, worker = records.workers.get(pid, (None, None))
    spent = {name: _spent(row.stages[number]) for number, name in enumerate(clocks.STAGES)}
    later = header["cpu_ns"] - header["first_cpu_ns"]
    # the stages that the process has clocks for, whether they ran or not
    names: tuple[str, ...] = STAGES if any(not each.num_workers for each in records.loaders) else MAIN_STAGES
    if not is_main:
        names = WORKER_STAGES  # planning is part of transforming
        spent["transform"] = total([spent["transform"], spent.pop("plan")])
    return Process(
        pid=pid,
        role="main" if is_main else "worker",
        loader=loader,
        worker=worker,
        seconds=records.seconds if is_main else header["ns"] / 1e9,
        cpu_s=header["cpu_ns"] / 1e9,
        system=min((header["system_ns"] - header["first_system_ns"]) / later, 1.0) if later > 0 else None,
        first=None if is_main else Spent(header["firsts"], 0, header["first_cpu_ns"]),
        before_cpu_s=None if is_main or pid in _there else header["before_cpu_ns"] / 1e9,
        threads=max(header["threads"], 1),
        stages={name: spent[name] for name in names if name in spent},
        images=records.images if is_main else header["images"],
        made=spent["made"] if spent["made"].count else None,
        delayed_s=header["delayed_ns"] / 1e9 if header["delayed_ns"] > 0 else None,
        gil=spent["gil"] if spent["gil"].count else None,
    )


def _spent(words: Any) -> Spent:
    histogram = words[HISTOGRAM:]
    used = np.flatnonzero(histogram)
    cpu = None
    if words[CPU_OF_NS] > 0:  # measured in some batches only; the others are assumed to be like these
        cpu = int(words[CPU_NS] * min(int(words[NS]) / int(words[CPU_OF_NS]), 1e6))
    last = int(used[-1]) + 1 if len(used) else 0
    return Spent(int(words[COUNT]), int(words[NS]), cpu, histogram[:last].tolist())


def _samples(row: ProcessRow) -> list[Sample]:
    found = []
    for text, times in row.texts:
        loading_, line, function, file = text.split("\n", 3)
        source = linecache.getline(file, int(line)).strip()
        found.append(Sample(file, int(line), function, source, row.header["pid"], times, loading=bool(int(loading_))))
    return found


def _events(folder: str, pids: dict[Any, int]) -> list[tuple[int, int, str, int, int]]:
    """Read the events that the processes have written; see ``Measured.events``.

    Args:
        pids: by (loader, worker): the process that stands for all that had this place, epoch after epoch.
    """
    found = []
    for file in Path(folder).iterdir():
        pid = int(file.name)
        pid = pids.get(loading.records.workers.get(pid), pid)
        for stage, thread, start, took in np.fromfile(file, np.int64).reshape(-1, 4).tolist():
            found.append((pid, thread, clocks.STAGES[stage], start, took))
    return sorted(found, key=lambda event: event[3])


def _since(now: Any, before: Any) -> Any:
    """The increase of counters, or of one, since ``before``."""
    if isinstance(now, dict):
        return {name: _since(value, (before or {}).get(name)) for name, value in now.items()}
    return now - before if isinstance(now, int) and isinstance(before, int) else now


# -- the machine --------------------------------------------------------------------------------------------


def machine() -> Machine:
    """Describe this machine, and how busy it was since measuring began."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_initialized() and usable(torch.device("cuda")) else None
    return Machine(
        cores=cores(),
        cores_all=os.cpu_count() or 1,
        busy=_share(_before[1], _busy()),
        memory_free=store.left(),
        shm_free=shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else None,
        gpu=gpu,
        world_size=int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1),
    )


def _busy() -> dict[int, tuple[int, int]] | None:
    """For each usable core, the ticks that it was busy and all ticks; None if the system does not tell."""
    try:
        usable_cores = os.sched_getaffinity(0)
        with open("/proc/stat") as file:
            lines = [line.split() for line in file if line.startswith("cpu") and line[3].isdigit()]
    except (OSError, AttributeError):
        return None
    ticks = {int(name[3:]): list(map(int, values[:8])) for name, *values in lines}
    return {core: (sum(each) - each[3] - each[4], sum(each)) for core, each in ticks.items() if core in usable_cores}


def _share(before: dict[int, tuple[int, int]] | None, after: dict[int, tuple[int, int]] | None) -> float | None:
    if not before or not after:
        return None
    pairs = [(after[core], before[core]) for core in after if core in before]
    passed = sum(new[1] - old[1] for new, old in pairs)
    return sum(new[0] - old[0] for new, old in pairs) / passed if passed > 0 else None
