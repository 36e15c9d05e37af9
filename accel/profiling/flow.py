"""The flow of batches through a loader, in numbers for one batch: what the verdict and the predictions reason with.

It is that of the loader that took most of the time; where several ranks were measured, that of the rank that waits
most for it. Times are nanoseconds for a batch; the first batch of an epoch is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accel.profiling.measured import WORKER_STAGES, Batch, Loader, Machine, Measured, Process, Spent, total
from accel.profiling.stepping import Stepping, stepping

_COMPUTED = ("record", "decode", "transform", "kernels", "collate")  # take a core for as long as they last
_IDLE = 0.1  # of the cores; less than that may as well be what was measured at another time
_ENOUGH, _BY_POOL = 4, ("decode", "transform", "kernels")


@dataclass
class Flow:
    loader: Loader
    machine: Machine
    main: Process | None
    workers: list[Process]
    ranks: int
    count: int
    """Batches that the means are of."""
    images: float
    """Of a batch."""
    bytes: float | None
    wait: float
    copy: float
    step: float
    busy: list[float]
    """What the main process does with each batch until it asks for the next one, in turn: step and copy."""
    stepping: Stepping
    """That, apart from who else wanted a core."""
    stages: dict[str, float]
    """Own times in the workers, without idle; thread-seconds of a pool are taken as the seconds they make."""
    made: Spent
    """How long a batch took in a worker; without workers, in the main process."""
    sending: float
    """What packing a batch takes beside that, in a thread of the worker's."""
    alone: float
    """And how long it would take if it never waited for a core."""
    cpu_made: float
    """CPU time that a batch takes in a worker, or takes in the loading if there are none."""
    cpu_main: float
    """And in the main process otherwise."""
    idle: float | None
    """Share of the workers' time without an index."""
    cores: float
    """For this rank, without what other programs take."""
    shared: float
    """With that: those of the machine that this rank shares with them."""
    rivals: float
    """Threads of other programs that have a core or wait for one, on average."""
    startup: float
    """An epoch's time to its first batch, beyond the wait for any other, later epochs', and to end its workers."""
    fill: float
    """What is left of it where workers stay: to make the first batch."""
    length: float
    """Batches of an epoch."""
    shifted: float
    """Of the wait, what was spent behind next(): lazy batches are computed where they are used."""
    gil_late: float | None
    """How late a thread of the main process came to have the GIL, on average."""

    def undelayed(self, *stages: str) -> float:
        """What these stages take of a batch where it never waits for a core."""
        made = self.made.ns / max(self.made.count, 1)
        return sum(self.stages.get(name, 0.0) for name in stages) * (self.alone / made if made else 1.0)

    @property
    def period(self) -> float:
        return self.wait + self.copy + self.step

    @property
    def rate(self) -> float:
        """Images a second of all ranks, once an epoch runs."""
        return self.images / self.period * 1e9 * self.ranks

    @property
    def epoch_rate(self) -> float:
        """Images a second over whole epochs, with their beginning."""
        return self.length * self.images / (self.length * self.period + self.startup) * 1e9 * self.ranks

    @property
    def slowed(self) -> float:
        """What the main process waits of a batch for cores that the workers keep busy, beside other programs."""
        at_work = self.made.ns / max(self.made.count, 1) / self.period if self.loader.num_workers else 0.0
        waited = sum(self.busy) / len(self.busy) - self.stepping.lasts()
        return waited * at_work / (at_work + self.rivals) if at_work else 0.0

    @property
    def in_use(self) -> float:
        """Cores that are busy for this rank."""
        return (self.cpu_made + self.cpu_main) / self.period


def flow(measured: Measured) -> Flow | None:
    """What of ``measured`` a verdict is made of; None if there are not two batches of an epoch."""
    chains: dict[tuple[int | None, int], list[Batch]] = {}
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


def _steady(measured: Measured, chain: list[Batch], number: int) -> list[Batch]:
    """Batches that are none of an epoch's first, one of each worker (of the first epoch's two), in whole turns of the
    workers: where one waits for all of a turn, the others are there at once. At least not the first, if few are."""
    known = [batch for batch in chain if batch.number > 0 and batch.step_ns is not None]
    workers = max(_loader(measured, number).num_workers, 1)
    enough = max(_ENOUGH, len(known) / 4)
    # in the first epoch's first two turns workers do things for the first time; in short epochs turns are not whole
    for first, whole in ((2, workers), (1, workers), (1, 1)):
        epochs: dict[int, list[Batch]] = {}
        for batch in known:
            if batch.number >= (1 if batch.epoch else first) * workers:
                epochs.setdefault(batch.epoch, []).append(batch)
        later = [batch for each in epochs.values() for batch in each[len(each) % whole :]]
        if len(later) >= enough:
            return later
    return known


def _period(batch: Batch) -> int:
    return batch.wait_ns + (batch.copy_ns or 0) + (batch.step_ns or 0)


def _gap(chain: Sequence[Batch], all_batches: Sequence[Batch]) -> float:
    """What passes from asking for a batch to asking for the next one and is no wait, copy or step, on average: lazy
    batches are computed where they are used."""
    asked = {(batch.epoch, batch.number): batch.asked_ns for batch in all_batches}
    gaps = [
        after - batch.asked_ns - _period(batch)
        for batch in chain
        if (after := asked.get((batch.epoch, batch.number + 1))) is not None
    ]
    return max(sum(gaps) / len(gaps), 0.0) if gaps else 0.0


def trimmed(spent: Spent) -> Spent:
    """Times without the longest, if that stands apart: what a process does for the first time."""
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
    chain: list[Batch],
    all_batches: list[Batch],
    ranks: int,
) -> Flow:
    count = len(chain)
    images = sum(batch.images for batch in chain) / count or float(loader.batch_size or 1)
    sizes = [batch.bytes for batch in chain if batch.bytes is not None]
    gap = _gap(chain, all_batches)
    wait = sum(batch.wait_ns for batch in chain) / count + gap
    copy = sum(batch.copy_ns or 0 for batch in chain) / count
    step = sum(batch.step_ns or 0 for batch in chain) / count
    in_workers = bool(loader.num_workers and workers)
    busy = [float(_period(batch) - batch.wait_ns) + (gap if in_workers else 0.0) for batch in chain]
    seconds = sum(worker.seconds for worker in workers)
    if in_workers:
        made = total(trimmed(worker.made) for worker in workers if worker.made)
        batches = 1.0 * sum(each.count for worker in workers for each in (worker.first, worker.made) if each)
    else:
        made = Spent()
        for batch in () if gap > 0.1 * wait else chain:
            made.add(batch.wait_ns)
        made.count, made.ns = count, int(wait * count)
        batches = (main.images or 0) / images if main is not None else 0.0
    batches = max(batches or len(all_batches), 1)
    stages = _stages(workers if in_workers else [main] if main is not None else [], batches)
    made = made if made.count else Spent(1, int(sum(stages.values()) or wait))
    mean = made.ns / made.count
    # else it is part of what a worker does with a batch
    sending = stages.get("send", 0.0) if in_workers and mean <= 0.9 * sum(stages.values()) else 0.0
    behind = not in_workers and gap > 0.1 * wait
    its_step = stepping(main, chain, all_batches, sum(busy) / count, alone=behind, length=loader.length)
    cpu_main = its_step.spent - (0.0 if in_workers else its_step.rest)
    queued = sum(each.delayed_s or 0.0 for each in (workers if in_workers else [main] if main else [])) * 1e9
    idle: float | None = None
    if in_workers:
        idles = [worker.stages["idle"].ns / 1e9 for worker in workers if "idle" in worker.stages]
        idle = sum(idles) / seconds if idles and seconds else None
        first = total(worker.first for worker in workers if worker.first)  # with all that is done once
        later = batches - first.count if batches - first.count >= len(workers) else 0.0
        used = 1e9 * sum(each.cpu_s or 0.0 for each in workers)
        cpu_made = (used - (first.cpu_ns or 0) * (later > 0)) / (later or batches)
        queued /= later or batches
        if cpu_made * batches < 1.05e9 * seconds:  # one thread each: the rest of the waiting is other threads'
            cpu_made = min(cpu_made, mean + sending)
            queued = min(queued, mean + sending - cpu_made)
        cpu_made = max(cpu_made, _computed(workers, stages) - queued)
    else:
        cpu_made, its_step = its_step.rest, replace(its_step, rest=0.0)
        queued *= cpu_made / max(cpu_made + cpu_main, 1.0) / batches
    alone = max(mean - queued, min(cpu_made, mean))
    (typical, length), fill = _epochs(loader, chain, all_batches, wait), max(mean - wait, 0.0)
    startup = max(typical - wait, fill) + (_middle(loader.ended_ns) if typical else 0.0)
    gil = main.gil.ns / main.gil.count if main is not None and main.gil and main.gil.count else None
    result = Flow(
        loader, measured.machine, main, workers, ranks, count, images, sum(sizes) / len(sizes) if sizes else None,
        wait, copy, step, busy, its_step, stages, made, sending, alone, cpu_made, cpu_main, idle, 1.0, 1.0, 0.0,
        startup, fill, length, gap, gil,
    )  # fmt: skip
    _share_cores(measured, result)
    return result


def _stages(makers: Sequence[Process], batches: float) -> dict[str, float]:
    """Nanoseconds of each stage for a batch."""
    stages: dict[str, float] = {}
    for process in makers:
        for name, spent in process.stages.items():
            if name in WORKER_STAGES[1:] and spent.count:
                its = trimmed(spent)
                share = max(process.threads, 1) if name in _BY_POOL else 1
                stages[name] = stages.get(name, 0.0) + its.ns * spent.count / its.count / share / batches
    return stages


def _computed(makers: Sequence[Process], stages: dict[str, float]) -> float:
    """Nanoseconds of a batch in stages that compute; a collate function of the user's may wait as well."""
    its = total(each.stages["collate"] for each in makers if "collate" in each.stages)
    waited = 0.0 if its.cpu_ns is None else max(1 - its.cpu_ns / max(its.ns, 1), 0.0)
    return sum(stages.get(name, 0.0) for name in _COMPUTED) - waited * stages.get("collate", 0.0)


def in_use(measured: Measured) -> tuple[float, float]:
    """Cores that the training's processes keep busy, and those that other programs do."""
    used = sum((each.cpu_s or 0.0) + (each.before_cpu_s or 0.0) for each in measured.processes)
    own = used / measured.seconds if measured.seconds else 0.0
    return own, max((measured.machine.busy or 0.0) * measured.machine.cores - own, 0.0)


def _share_cores(measured: Measured, flow: Flow) -> None:
    """How many cores a rank may have, and who else wants them.

    Where other programs take all that are left it keeps what it has, and what a thread gets that always computes.
    """
    machine, ranks = measured.machine, max(measured.machine.world_size, flow.ranks)
    others = in_use(measured)[1] if machine.world_size == flow.ranks else 0.0
    known = [each for each in measured.processes if each.seconds > 0]
    got = sum((each.cpu_s or 0.0) / each.seconds for each in known)
    wanted = got + sum((each.delayed_s or 0.0) / each.seconds for each in known)
    share = got / wanted if got else 1.0
    free, used = (machine.cores - others) / ranks, min(flow.in_use, machine.cores)
    flow.cores = max(free if free - used > _IDLE * machine.cores / ranks else used, share)
    flow.shared, flow.rivals = machine.cores / ranks, others / share / ranks


def _epochs(loader: Loader, chain: Sequence[Batch], all_batches: Sequence[Batch], wait: float) -> tuple[float, float]:
    """How long an epoch takes to its first batch, with what the next few wait for longer; how many batches it has."""
    counts: dict[int, int] = {}
    waited: dict[int, float] = {}
    first = min(batch.number for batch in chain)
    for batch in all_batches:
        counts[batch.epoch] = counts.get(batch.epoch, 0) + 1
        if 0 < batch.number < first:
            waited[batch.epoch] = waited.get(batch.epoch, 0.0) + max(batch.wait_ns - wait, 0.0)
    ended = [counts[epoch] for epoch in sorted(counts)[:-1]] or [0]
    length = float(loader.length or sum(ended) / len(ended) or max(len(all_batches), 1000))
    # in the first epoch is what is done once a process: imports, compiling
    later = [each + waited.get(epoch, 0.0) for epoch, each in enumerate(loader.startup_ns) if epoch]
    return _middle(later), length


def _middle(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2] if times else 0.0
