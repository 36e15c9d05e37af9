"""The flow of batches through a loader, as means for one batch: the input of the verdict and of predictions.

It describes the loader that took most of the time and, of several ranks, the one that waits most for it. Times are
nanoseconds for a batch; the first batch of an epoch is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median_high

from accel.profiling.measured import WORKER_STAGES, BatchTimes, Loader, Machine, Measured, Process, Spent, total
from accel.profiling.stepping import Stepping, stepping

_COMPUTED = ("record", "decode", "transform", "kernels", "collate")  # stages that keep a core busy all the time
_IDLE = 0.1  # the least part of the cores that counts as idle; less may come from measuring at different times
_ENOUGH, _BY_POOL = 4, ("decode", "transform", "kernels")


@dataclass
class Flow:
    loader: Loader
    machine: Machine
    main: Process | None
    workers: list[Process]
    ranks: int
    count: int
    """The number of batches averaged."""
    images: float
    """Images of a batch."""
    bytes: float | None
    wait: float
    copy: float
    step: float
    busy: list[float]
    """Step and copy of each batch in turn: the time until the main process asks for the next one."""
    stepping: Stepping
    """The same, without the time that others took the cores."""
    stages: dict[str, float]
    """Own times of the stages in the workers, without "idle"; times on a pool's threads are divided by their number."""
    made: Spent
    """The times to make a batch in a worker or, without workers, in the main process."""
    sending: float
    """The time to pack a batch, besides that, in the worker's sending thread."""
    alone: float
    """The time to make a batch if it never waited for a core."""
    cpu_made: float
    """CPU time of a batch in a worker or, without workers, of loading it."""
    cpu_main: float
    """Other CPU time of a batch in the main process."""
    startup: float
    """The time to the first batch of later epochs, beyond a usual wait, plus the time to end an epoch's workers."""
    length: float
    """Batches of an epoch."""
    shifted: float
    """The part of the wait that comes after ``next()``: lazy batches are computed where they are used."""
    cores: float = 1.0
    """Cores for this rank, without those that other programs use."""
    shared: float = 1.0
    """Cores for this rank, including those that it shares with other programs."""
    rivals: float = 0.0
    """The mean number of threads of other programs that have a core or wait for one."""

    @property
    def fill(self) -> float:
        """The part of ``startup`` that persistent workers have too: making the first batch."""
        return max(self.made.mean - self.wait, 0.0)

    @property
    def idle(self) -> float | None:
        """Share of the workers' time in which they have no indices to work on; None: not measured."""
        seconds = sum(worker.seconds for worker in self.workers)
        idle = [worker.stages["idle"].ns / 1e9 for worker in self.workers if "idle" in worker.stages]
        return sum(idle) / seconds if idle and seconds else None

    @property
    def gil_late(self) -> float | None:
        """The mean time that a thread of the main process waited for the GIL; None: not measured."""
        return self.main.gil.mean if self.main is not None and self.main.gil and self.main.gil.count else None

    def undelayed(self, *stages: str) -> float:
        """The time of these stages for a batch that never waits for a core."""
        undelayed = self.alone / self.made.mean if self.made.mean else 1.0
        return sum(self.stages.get(name, 0.0) for name in stages) * undelayed

    @property
    def period(self) -> float:
        return self.wait + self.copy + self.step

    @property
    def rate(self) -> float:
        """Images a second of all ranks, once an epoch runs."""
        return self.images / self.period * 1e9 * self.ranks

    @property
    def epoch_rate(self) -> float:
        """Images a second over whole epochs, including how they begin."""
        return self.length * self.images / (self.length * self.period + self.startup) * 1e9 * self.ranks

    @property
    def slowed(self) -> float:
        """The time for a batch that the main process waits for cores because of the workers, not of other programs."""
        at_work = self.made.mean / self.period if self.loader.num_workers else 0.0
        waited = sum(self.busy) / len(self.busy) - self.stepping.lasts()
        return waited * at_work / (at_work + self.rivals) if at_work else 0.0

    @property
    def in_use(self) -> float:
        """The mean number of cores that this rank keeps busy."""
        return (self.cpu_made + self.cpu_main) / self.period


def flow(measured: Measured) -> Flow | None:
    """Compute the flow; None if no epoch has two batches."""
    chains: dict[tuple[int | None, int], list[BatchTimes]] = {}
    for batch in measured.batches:
        chains.setdefault((batch.pid, batch.loader), []).append(batch)
    steady = {key: found for key, chain in chains.items() if (found := _steady(measured, chain, key[1]))}
    spent = {key: sum(_period(batch) for batch in chain) for key, chain in steady.items()}
    most = max(spent.values(), default=0)
    if most <= 0:
        return None
    chosen = [key for key in steady if spent[key] >= 0.7 * most]
    pid, number = max(chosen, key=lambda key: sum(batch.wait_ns for batch in steady[key]))
    mains = {process.pid: process for process in measured.processes if process.role == "main"}
    main = mains.get(pid) if pid is not None else next(iter(mains.values()), None)
    workers = [each for each in measured.processes if each.role == "worker" and each.loader == number]
    ranks = len({key[0] for key in chosen})
    return _flow(measured, _loader(measured, number), main, workers, steady[pid, number], chains[pid, number], ranks)


def _loader(measured: Measured, number: int) -> Loader:
    return next((each for each in measured.loaders if each.number == number), Loader(number))


def _steady(measured: Measured, chain: list[BatchTimes], number: int) -> list[BatchTimes]:
    """The batches to average: without the first of each worker in an epoch (two in the first epoch), and in whole turns
    of the workers, as one batch of a turn may have all the wait. If these are few, all but each epoch's first."""
    known = [batch for batch in chain if batch.number > 0 and batch.step_ns is not None]
    workers = max(_loader(measured, number).num_workers, 1)
    enough = max(_ENOUGH, len(known) / 4)
    # in the first epoch two turns include work done only once; in short epochs turns are not whole
    for first, whole in ((2, workers), (1, workers), (1, 1)):
        epochs: dict[int, list[BatchTimes]] = {}
        for batch in known:
            if batch.number >= (1 if batch.epoch else first) * workers:
                epochs.setdefault(batch.epoch, []).append(batch)
        later = [batch for each in epochs.values() for batch in each[len(each) % whole :]]
        if len(later) >= enough:
            return later
    return known


def _period(batch: BatchTimes) -> int:
    return batch.wait_ns + (batch.copy_ns or 0) + (batch.step_ns or 0)


def _gap(chain: Sequence[BatchTimes], all_batches: Sequence[BatchTimes]) -> float:
    """The mean time between requests for batches that is no wait, copy or step: lazy batches are computed where they
    are used."""
    requests = {(batch.epoch, batch.number): batch.requested_ns for batch in all_batches}
    gaps = [
        after - batch.requested_ns - _period(batch)
        for batch in chain
        if (after := requests.get((batch.epoch, batch.number + 1))) is not None
    ]
    return max(sum(gaps) / len(gaps), 0.0) if gaps else 0.0


def trimmed(spent: Spent) -> Spent:
    """Times without the longest, if that is an outlier, as it includes work done only once."""
    histogram, left = list(spent.histogram), spent.count
    used = [bucket for bucket, count in enumerate(histogram) if count]
    if left < _ENOUGH or not used or sum(histogram) != left:
        return spent
    middle = spent.percentile(50) or 0.0
    longest = 2 ** ((used[-1] + 0.5) / 4)
    if histogram[used[-1]] > 1 or longest < 3 * middle:
        return spent
    histogram[used[-1]] = 0
    cpu = None if spent.cpu_ns is None else int(spent.cpu_ns * max(1 - longest / max(spent.ns, 1), 0.0))
    return Spent(left - 1, max(int(spent.ns - longest), int(middle)), cpu, histogram)


def _flow(
    measured: Measured,
    loader: Loader,
    main: Process | None,
    workers: list[Process],
    chain: list[BatchTimes],
    all_batches: list[BatchTimes],
    ranks: int,
) -> Flow:
    count = len(chain)
    images = sum(batch.images for batch in chain) / count or float(loader.batch_size or 1)
    sizes = [batch.bytes for batch in chain if batch.bytes is not None]
    gap = _gap(chain, all_batches)
    wait = sum(batch.wait_ns for batch in chain) / count + gap
    behind = not workers and gap > 0.1 * wait  # batches are made where they are used
    busy = [float(_period(batch) - batch.wait_ns) + (gap if workers else 0.0) for batch in chain]
    step = stepping(main, chain, all_batches, sum(busy) / count, alone=behind, length=loader.length)
    makers = workers or ([main] if main is not None else [])
    if workers:
        made = total(trimmed(worker.made) for worker in workers if worker.made)
        batches = 1.0 * sum(each.count for worker in workers for each in (worker.first, worker.made) if each)
    else:
        made = replace(_waits(() if behind else chain), count=count, ns=int(wait * count))
        batches = sum(each.images or 0 for each in makers) / images
    batches = max(batches or len(all_batches), 1)
    stages = _stages(makers, batches)
    made = made if made.count else Spent(1, int(sum(stages.values()) or wait))
    queued = sum(each.delayed_s or 0.0 for each in makers) * 1e9
    if workers:
        # otherwise sending is part of a worker's work on a batch
        sending = stages.get("send", 0.0) if made.mean <= 0.9 * sum(stages.values()) else 0.0
        cpu_main = step.spent
        cpu_made, queued = _computing(workers, stages, batches, made.mean + sending, queued)
    else:
        sending, cpu_main, cpu_made = 0.0, step.spent - step.rest, step.rest
        step = replace(step, rest=0.0)
        queued *= cpu_made / max(cpu_made + cpu_main, 1.0) / batches
    typical, length = _epochs(loader, chain, all_batches, wait)
    result = Flow(
        loader=loader,
        machine=measured.machine,
        main=main,
        workers=workers,
        ranks=ranks,
        count=count,
        images=images,
        bytes=sum(sizes) / len(sizes) if sizes else None,
        wait=wait,
        copy=sum(batch.copy_ns or 0 for batch in chain) / count,
        step=sum(batch.step_ns or 0 for batch in chain) / count,
        busy=busy,
        stepping=step,
        stages=stages,
        made=made,
        sending=sending,
        alone=max(made.mean - queued, min(cpu_made, made.mean)),
        cpu_made=cpu_made,
        cpu_main=cpu_main,
        startup=max(typical - wait, made.mean - wait, 0.0) + (median_high(loader.ended_ns or [0]) if typical else 0.0),
        length=length,
        shifted=gap,
    )
    _share_cores(measured, result)
    return result


def _waits(chain: Iterable[BatchTimes]) -> Spent:
    spent = Spent()
    for batch in chain:
        spent.add(batch.wait_ns)
    return spent


def _computing(
    workers: Sequence[Process], stages: dict[str, float], batches: float, longest: float, queued: float
) -> tuple[float, float]:
    """The CPU time of a batch in a worker, and how long it waits for a core, of ``queued`` in all; both at most
    ``longest`` together, if workers have one thread."""
    first = total(worker.first for worker in workers if worker.first)  # with all work done only once
    later = batches - first.count if batches - first.count >= len(workers) else 0.0
    spent = 1e9 * sum(each.cpu_s or 0.0 for each in workers)
    cpu = (spent - (first.cpu_ns or 0) * (later > 0)) / (later or batches)
    queued /= later or batches
    if cpu * batches < 1.05e9 * sum(worker.seconds for worker in workers):  # other waiting is that of other threads
        cpu = min(cpu, longest)
        queued = min(queued, longest - cpu)
    return max(cpu, _computed(workers, stages) - queued), queued


def _stages(makers: Sequence[Process], batches: float) -> dict[str, float]:
    """Own time of each stage for a batch, in nanoseconds."""
    stages: dict[str, float] = {}
    for process in makers:
        for name, spent in process.stages.items():
            if name in WORKER_STAGES[1:] and spent.count:
                its = trimmed(spent)
                share = max(process.threads, 1) if name in _BY_POOL else 1
                stages[name] = stages.get(name, 0.0) + its.ns * spent.count / its.count / share / batches
    return stages


def _computed(makers: Sequence[Process], stages: dict[str, float]) -> float:
    """Nanoseconds that a batch computes; of the collate function, which may wait, only the share that is CPU time."""
    its = total(each.stages["collate"] for each in makers if "collate" in each.stages)
    waited = 0.0 if its.cpu_ns is None else max(1 - its.cpu_ns / max(its.ns, 1), 0.0)
    return sum(stages.get(name, 0.0) for name in _COMPUTED) - waited * stages.get("collate", 0.0)


def in_use(measured: Measured) -> tuple[float, float]:
    """The mean number of cores kept busy by the training's processes, and by other programs."""
    used = sum((each.cpu_s or 0.0) + (each.before_cpu_s or 0.0) for each in measured.processes)
    own = used / measured.seconds if measured.seconds else 0.0
    return own, max((measured.machine.busy or 0.0) * measured.machine.cores - own, 0.0)


def _share_cores(measured: Measured, flow: Flow) -> None:
    """Set the cores that a rank may have, and the threads of other programs that compete for them.

    If other programs use all the others, it keeps those that it has, and at least a busy thread's share of a core.
    """
    machine, ranks = measured.machine, max(measured.machine.world_size, flow.ranks)
    others = in_use(measured)[1] if machine.world_size == flow.ranks else 0.0
    known = [each for each in measured.processes if each.seconds > 0]
    got = sum((each.cpu_s or 0.0) / each.seconds for each in known)
    demand = got + sum((each.delayed_s or 0.0) / each.seconds for each in known)
    share = got / demand if got else 1.0
    free, used = (machine.cores - others) / ranks, min(flow.in_use, machine.cores)
    flow.cores = max(free if free - used > _IDLE * machine.cores / ranks else used, share)
    flow.shared, flow.rivals = machine.cores / ranks, others / share / ranks


def _epochs(
    loader: Loader, chain: Sequence[BatchTimes], all_batches: Sequence[BatchTimes], wait: float
) -> tuple[float, float]:
    """The time to an epoch's first batch plus longer waits for the next few; and the number of batches of an epoch."""
    counts: dict[int, int] = {}
    waited: dict[int, float] = {}
    first = min(batch.number for batch in chain)
    for batch in all_batches:
        counts[batch.epoch] = counts.get(batch.epoch, 0) + 1
        if 0 < batch.number < first:
            waited[batch.epoch] = waited.get(batch.epoch, 0.0) + max(batch.wait_ns - wait, 0.0)
    ended = [counts[epoch] for epoch in sorted(counts)[:-1]] or [0]
    length = float(loader.length or sum(ended) / len(ended) or max(len(all_batches), 1000))
    # the first epoch includes work done once a process: imports, compiling
    later = [each + waited.get(epoch, 0.0) for epoch, each in enumerate(loader.startup_ns) if epoch]
    return median_high(later or [0.0]), length
