"""The verdict: the name of the bottleneck, and why it is that.

docs/profiling.md says by which measurements each is recognized; the questions are asked in the same order here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from accel.profiling import predict
from accel.profiling.flow import Flow, flow, in_use
from accel.profiling.measured import Measured, Sample

_STAGES = ("read", "record", "decode", "transform", "user", "collate", "send")
BOTTLENECKS = (*_STAGES, "workers", "prefetch", "threads", "startup", "shm", "copy", "gil", "step", "none")

WAITING = 0.1
"""The share of the time from which waiting or copying counts as a bottleneck."""
HELPS = 1.1
"""The least predicted speed-up that is worth mentioning."""
_NAMES = {"kernels": "transform", "plan": "transform", "launch": "transform"}
_LATE = 2.5e6  # ns: half of Python's switch interval
_FEWEST = 4  # batches
_FULL = ("shared memory", "no space left on device", "bus error")
"""Texts in torch's errors when /dev/shm is full."""
NO_ROOM = "no room in the memory"


@dataclass
class Verdict:
    """The bottleneck of a training.

    Attributes:
        bottleneck: one of ``BOTTLENECKS``.
        why: a sentence with the figures that show it.
        stage: the stage that costs most in making a batch; ``share``: its share of that.
        flow: the measurements that it was judged by; None if there are too few.
    """

    bottleneck: str
    why: str
    stage: str | None = None
    share: float = 0.0
    flow: Flow | None = None


def judge(measured: Measured) -> Verdict:
    """Name the bottleneck of a training; "none" if there is too little to judge."""
    its = flow(measured)
    if measured.failed and any(text in measured.failed.lower() for text in _FULL):
        return Verdict("shm", f"a worker found no shared memory: {_last_line(measured.failed)}", flow=its)
    if its is None or its.count < _FEWEST:
        ended = f"; it ended with {_last_line(measured.failed)}" if measured.failed else ""
        return Verdict("none", f"too few batches of a DataLoader to judge{ended}", flow=its)
    name, share = stage(its)
    for bottleneck, why in _answers(measured, its, name, share):
        return Verdict(bottleneck, why, name, share, its)
    return Verdict("none", "nothing that was measured stands out", name, share, its)


def _last_line(error: str) -> str:
    """The last line of an error, which may be a worker's traceback."""
    return error.strip().splitlines()[-1][-200:]


def stage(its: Flow) -> tuple[str | None, float]:
    """The name, in ``STAGES``, and the share of the stage that costs most in making a batch; None and 0 if unknown."""
    spent = sum(its.stages.values())
    if spent <= 0:
        return None, 0.0
    name = max(its.stages, key=lambda each: its.stages[each])
    return name, its.stages[name] / spent


def _answers(measured: Measured, its: Flow, name: str | None, share: float) -> Iterator[tuple[str, str]]:
    """Candidates for the bottleneck, each with the reason; the first is taken."""
    waiting, copying = its.wait / its.period, its.copy / its.period
    if text := _too_many_threads(measured, its):
        yield "threads", text
    begins = its.startup - its.fill
    started = begins / (its.startup + its.length * its.period)
    if started > max(WAITING, waiting * (1 - started)):
        yield "startup", f"{begins / 1e9:.2f} s before the first batch of each epoch, {started:.0%} of it"
    waits, slowed = f"the loop waits for input {waiting:.0%} of the time", its.slowed / its.period
    if waiting < WAITING and copying < WAITING:
        if waiting + slowed > WAITING and its.cpu_made > its.stepping.cpu():
            yield _costly(
                measured, its, name, share, f"{waits}, and the step {slowed:.0%} for cores the workers are on"
            )
        yield "step", f"{waits} and copies {copying:.0%}"
    if copying > waiting:
        yield "copy", f"{its.copy / 1e6:.1f} ms of {its.period / 1e6:.1f} ms a batch are copying to the device"
    if its.loader.num_workers == 0:
        yield _costly(measured, its, name, share, f"{waits}; it loads itself, without workers")
        return
    if _holds_the_gil(its) and _starved(its, by_gil=True):
        late = f"{(its.gil_late or 0) / 1e6:.0f} ms late"
        yield "gil", f"{waits}, though the workers could keep up; the main process holds the GIL (others come {late})"
    if text := _no_room(measured, its, name):
        yield "shm", f"{waits}; {text}"
    # only CPU time: the rest is waiting, for the GIL or for a worker's thread that hands over shared memory
    unpacked = predict.unpacked(its, computed=True)
    if unpacked > 0.5 * its.wait:
        yield "send", f"{waits}, {unpacked / 1e6:.1f} ms a batch of it to read and unpack what workers sent"
    if _starved(its) and predict.gain(its, prefetch=4 * (its.loader.prefetch_factor or 2)) > 1.05:
        idle = "" if its.idle is None else f" ({its.idle:.0%} idle)"
        yield "prefetch", f"{waits}, though the workers could keep up{idle}: steps or batches come in bursts"
    yield _costly(measured, its, name, share, waits)


def _costly(measured: Measured, its: Flow, name: str | None, share: float, waits: str) -> tuple[str, str]:
    """The most costly stage as the bottleneck; or "workers", if there are too few for ordinary work."""
    if name is None:
        return "none", f"{waits}; what the workers do was not measured"
    few = its.loader.num_workers
    ordinary = name in ("record", "decode", "transform", "kernels") or share < 0.5
    free = its.cores - its.in_use
    if ordinary and free > 0.25 and predict.gain(its, workers=2 * few + 2) > HELPS:
        return "workers", f"{waits}; {few or 'no'} worker{'s' * (few != 1)}, and {free:.1f} of {its.cores:g} cores idle"
    where = "the loading" if few == 0 else f"the {few} workers' work" if few > 1 else "the worker's work"
    text = f"{waits}; {name} is {share:.0%} of {where}"
    if name == "user" and (sample := hottest(measured)):
        text += f" ({place(sample)})"
    early = measured.counters.get("computed early")
    if isinstance(early, int) and early > its.count * its.images / 2:
        askers = measured.counters.get("computed early by", {})
        who = max(askers, key=askers.get, default="something")
        text += f"; {early} images were computed one at a time, because {who} asked for their pixels"
    return _NAMES.get(name, name), text


def loading(measured: Measured) -> list[Sample]:
    """Samples of code that makes batches: in workers, if there are any."""
    workers = {process.pid for process in measured.processes if process.role == "worker"}
    return [sample for sample in measured.samples if sample.loading and (not workers or sample.process in workers)]


def hottest(measured: Measured) -> Sample | None:
    """The user's statement that is most frequent in samples of making batches; None if there are none."""
    counts: Counter[tuple[str, int]] = Counter()
    for sample in loading(measured):
        counts[sample.file, sample.line] += sample.count
    return max(loading(measured), key=lambda each: counts[each.file, each.line], default=None)


def place(sample: Sample) -> str:
    """A statement with its file and line, short enough for one line."""
    text = sample.text.strip()
    text = text if len(text) <= 44 else text[:41] + "..."
    return f"{sample.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{sample.line} {text}".strip()


def _starved(its: Flow, by_gil: bool = False) -> bool:
    """Whether both sides wait for each other, as each alone would be much faster than they are together.

    ``by_gil``: leave out receiving in the main process and sending, as one waits for the GIL and the other for it.
    """
    if not its.stages:
        return False
    workers = max(its.loader.num_workers, 1)
    alone = max(its.step + its.copy, its.made.mean / workers, its.cpu_made / its.cores)
    if not by_gil:
        alone = max(alone, its.sending / workers, (its.cpu_made + its.cpu_main) / its.cores)
    lost = its.period - alone
    return lost > 0.5 * its.wait and lost > 0.05 * its.period and (its.idle is None or its.idle > 0.1)


def _holds_the_gil(its: Flow) -> bool:
    """Whether other threads of the main process get the GIL late, and not for lack of a core."""
    if its.main is None or its.gil_late is None:
        return False
    waits = (its.main.delayed_s or 0.0) / its.main.cpu_s if its.main.cpu_s else 0.0
    return its.gil_late > _LATE * (1 + 4 * waits)


def _too_many_threads(measured: Measured, its: Flow) -> str | None:
    """A text if threads beyond one for each process fill the cores and wait for them; else None."""
    own, others = in_use(measured)
    demand = beyond = waited = used = 0.0
    for process in measured.processes:
        if process.seconds <= 0 or process.cpu_s is None or process.delayed_s is None:
            continue
        wants = (process.cpu_s + process.delayed_s) / process.seconds
        demand, beyond = demand + wants, beyond + max(wants - 1, 0.0)
        waited, used = waited + process.delayed_s, used + process.cpu_s
    cores = its.machine.cores
    if own < others and beyond < 2 * cores:  # they wait for other programs
        return None
    if demand > 1.6 * cores and beyond > 0.6 * cores and waited > 0.4 * used:
        return f"threads that could run would fill {demand:.0f} cores; there are {cores}"
    return None


def _no_room(measured: Measured, its: Flow, name: str | None) -> str | None:
    """A text if workers lack shared memory, as too little is free or slots ran out; else None."""
    free, size = its.machine.shm_free, its.bytes or 0
    if free is not None and free < 2 * size and measured.backend == "torchvision":
        return f"/dev/shm has {free / 1e6:.0f} MB free for batches of {size / 1e6:.0f} MB"
    refused = sum(
        count
        for reason, count in measured.counters.get("fallbacks", {}).items()
        if NO_ROOM in reason and isinstance(count, int)
    )
    if name == "send" and refused > its.count / 2:
        return f"{refused} batches found no room in the shared memory that is used again"
    return None
