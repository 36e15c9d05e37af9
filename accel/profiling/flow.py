"""The flow of batches through a loader, in numbers for one batch: what the verdict and the predictions reason with.

It is that of the loader that took most of the time; where several ranks were measured, that of the rank that waits
most for it. Times are nanoseconds for a batch; the first batch of an epoch is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accel.profiling.measured import WORKER_STAGES, Batch, Loader, Machine, Measured, Process, Spent, total

COMPUTED = ("record", "decode", "transform", "kernels", "collate")
"""Stages that take a core for as long as they last."""
_BY_POOL = ("decode", "transform", "kernels")


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
    stages: dict[str, float]
    """Own times in the workers, without idle; thread-seconds of a pool are taken as the seconds they make."""
    made: Spent
    """How long a batch took in a worker; without workers, in the main process."""
    delayed: float
    """Of that, waiting for a core; 0 if that is not measured."""
    cpu_made: float
    """CPU time that a batch takes in a worker, or takes in the loading if there are none."""
    cpu_main: float
    """And in the main process otherwise."""
    idle: float | None
    """Share of the workers' time without an index."""
    cores: float
    """For this rank, without what other programs take."""
    startup: float
    """An epoch's time to its first batch, beyond the wait for any other, if epochs go on as they did."""
    fill: float
    """What is left of it where workers stay: to make the first batch."""
    length: float
    """Batches of an epoch."""
    shifted: float
    """Of the wait, what was spent behind next(): lazy batches are computed where they are used."""
    gil_late: float | None
    """How late a thread of the main process came to have the GIL, on average."""

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
    def in_use(self) -> float:
        """Cores that are busy for this rank."""
        return (self.cpu_made + self.cpu_main) / self.period


def flow(measured: Measured) -> Flow | None:
    """What of ``measured`` a verdict is made of; None if there are not two batches of an epoch."""
    chains: dict[tuple[int | None, int], list[Batch]] = {}
    for batch in measured.batches:
        if batch.number > 0 and batch.step_ns is not None:
            chains.setdefault((batch.pid, batch.loader), []).append(batch)
    if not chains:
        return None
    mains = {process.pid: process for process in measured.processes if process.role == "main"}
    most = max(sum(_period(batch) for batch in chain) for chain in chains.values())
    chosen = [key for key, chain in chains.items() if sum(map(_period, chain)) >= 0.7 * most]
    pid, number = max(chosen, key=lambda key: sum(batch.wait_ns for batch in chains[key]))
    chain = chains[pid, number]
    if sum(map(_period, chain)) <= 0:
        return None
    main = mains.get(pid) if pid is not None else next(iter(mains.values()), None)
    loader = next((each for each in measured.loaders if each.number == number), Loader(number))
    workers = [each for each in measured.processes if each.role == "worker" and each.loader == number]
    if measured.batches and len({each.pid for each in measured.loaders}) <= 1 and not workers and loader.num_workers:
        workers = [each for each in measured.processes if each.role == "worker"]
    all_batches = [batch for batch in measured.batches if (batch.pid, batch.loader) == (pid, number)]
    return _flow(measured, loader, main, workers, chain, all_batches, len({key[0] for key in chosen}))


def _period(batch: Batch) -> int:
    return batch.wait_ns + (batch.copy_ns or 0) + (batch.step_ns or 0)


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
    images = sum(batch.images for batch in chain) / count
    sizes = [batch.bytes for batch in chain if batch.bytes is not None]
    wait = sum(batch.wait_ns for batch in chain) / count
    copy = sum(batch.copy_ns or 0 for batch in chain) / count
    step = sum(batch.step_ns or 0 for batch in chain) / count
    busy = [float((batch.step_ns or 0) + (batch.copy_ns or 0)) for batch in chain]
    seconds = sum(worker.seconds for worker in workers)
    makers, batches = workers, 0.0
    if loader.num_workers and workers:
        batches = sum(worker.made.count for worker in workers if worker.made) or (
            sum(worker.images or 0 for worker in workers) / images or len(all_batches)
        )
    elif main is not None:
        makers, batches = [main], (main.images or 0) / images or len(all_batches)
    batches = max(batches, 1)
    stages: dict[str, float] = {}
    for process in makers:
        for name, spent in process.stages.items():
            if name in WORKER_STAGES[1:]:
                share = max(process.threads, 1) if name in _BY_POOL else 1
                stages[name] = stages.get(name, 0.0) + spent.ns / share / batches
    cpu_main = _cpu(main) / max(len(all_batches), 1) if main is not None else 0.0
    idle: float | None = None
    delayed = shifted = 0.0
    if loader.num_workers and workers:
        made = total(worker.made for worker in workers if worker.made)
        if not made.count:
            made = Spent(1, int(sum(stages.values()) or wait))
        idles = [worker.stages["idle"].ns for worker in workers if "idle" in worker.stages]
        idle = sum(idles) / 1e9 / seconds if idles and seconds else None
        ours, others = in_use(measured)  # what other programs take will be taken under any setting
        delayed = sum(worker.delayed_s or 0.0 for worker in workers) * 1e9 / batches * ours / max(ours + others, 1e-9)
        delayed = min(delayed, max(made.ns / made.count - sum(map(_cpu, workers)) / batches, 0.0))
        computed = sum(stages.get(name, 0.0) for name in COMPUTED) - delayed
        cpu_made = sum(map(_cpu, workers)) / batches
        if cpu_made * batches < 1.05e9 * seconds:  # one thread each: the rest is what starting a worker takes
            cpu_made = min(cpu_made, made.ns / made.count - delayed)
        cpu_made = max(cpu_made, computed)
    else:
        # lazy batches are computed behind next(): the stages' own times say what is left of steps and copies
        own_step, own_copy = (_a_batch(main, name, len(all_batches)) for name in ("step", "copy"))
        less_step = step - min(step, own_step or step)
        less_copy = copy - min(copy, own_copy or copy)
        shifted = less_step + less_copy
        wait, step, copy = wait + shifted, step - less_step, copy - less_copy
        busy = [max(each - shifted, 0.0) for each in busy]
        histogram: list[int] = []
        made = Spent(0, 0, None, histogram)
        for batch in () if shifted > 0.1 * wait else chain:
            made.add(batch.wait_ns)
        made.count, made.ns = count, int(wait * count)
        stepped = [batch.step_cpu_ns for batch in chain if batch.step_cpu_ns is not None]
        cpu_step = min(sum(stepped) / len(stepped) if stepped else cpu_main, cpu_main, step + copy)
        cpu_made, cpu_main = max(cpu_main - cpu_step, 0.0), cpu_step
    typical, length = _epochs(loader, chain)
    fill = max(made.ns / max(made.count, 1) - wait, 0.0)
    startup = max(typical - wait, fill)
    gil = main.gil.ns / main.gil.count if main is not None and main.gil and main.gil.count else None
    result = Flow(
        loader, measured.machine, main, workers, ranks, count, images, sum(sizes) / len(sizes) if sizes else None,
        wait, copy, step, busy, stages, made, delayed, cpu_made, cpu_main, idle, 1.0, startup, fill, length, shifted,
        gil,
    )  # fmt: skip
    result.cores = _cores(measured, result)
    return result


def _a_batch(main: Process | None, stage: str, batches: int) -> float | None:
    spent = main.stages.get(stage) if main is not None else None
    return spent.ns / batches if spent is not None and spent.count else None


def _cpu(process: Process) -> float:
    return (process.cpu_s or 0.0) * 1e9


def in_use(measured: Measured) -> tuple[float, float]:
    """Cores that the training's processes keep busy, and those that other programs do."""
    own = sum(each.cpu_s or 0.0 for each in measured.processes) / measured.seconds if measured.seconds else 0.0
    return own, max((measured.machine.busy or 0.0) * measured.machine.cores - own, 0.0)


def _cores(measured: Measured, flow: Flow) -> float:
    """The cores that a rank may have: its share of those that other programs leave."""
    machine = measured.machine
    others = in_use(measured)[1] if machine.world_size == flow.ranks else 0.0
    return max((machine.cores - others) / max(machine.world_size, flow.ranks), 1.0, min(flow.in_use, machine.cores))


def _epochs(loader: Loader, chain: Sequence[Batch]) -> tuple[float, float]:
    """How long an epoch takes to its first batch, and how many batches it has."""
    epochs = {batch.epoch for batch in chain}
    ended = [sum(batch.epoch == epoch for batch in chain) + 1 for epoch in sorted(epochs)[:-1]]
    length = float(loader.length or (sum(ended) / len(ended) if ended else 0) or max(len(chain), 1000))
    later = loader.startup_ns[1:]  # in the first, what is done once a process is done: imports, compiling
    return float(sorted(later)[len(later) // 2]) if later else 0.0, length
