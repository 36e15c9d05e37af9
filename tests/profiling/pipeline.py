"""A DataLoader's pipeline, simulated by events: workers, indices, queues in order, cores that are shared, epochs.

It knows nothing of accel's model of rates: every process runs through its phases, which wait or want a core, and cores
are shared equally by those who want one at a time. What it gives is a ``Measured`` of what the clocks would have seen.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from accel.profiling.fetching import FIRST
from accel.profiling.measured import BatchTimes, Loader, Machine, Measured, Process, Sample, Spent

MS = 1_000_000
Phase = tuple[str, float, float]
"""A stage, milliseconds, and how many cores it wants meanwhile: 0 waits."""


@dataclass
class Pipeline:
    """A training: milliseconds for a batch."""

    work: dict[str, tuple[float, float]] = field(default_factory=lambda: {"decode": (10.0, 1.0)})
    """Of a worker, by stage: (milliseconds, cores wanted)."""
    step: tuple[float, float] = (10.0, 0.0)
    copy: float = 0.0
    unpack: float = 0.1
    packing: tuple[float, float] = (0.0, 0.0)
    """In a thread of the worker's, beside its next batches."""
    receive: float = 0.0
    """To read a message that is larger than the pipe: of the main process, and of the thread that sends it."""
    workers: int = 2
    prefetch: int = 2
    cores: int = 2
    rivals: float = 0.0
    """Threads of other programs that always want a core."""
    epochs: int = 1
    batches: int = 80
    startup: float = 0.0
    """To start a worker, before its first batch."""
    once: float = 0.0
    """Computed by each process before it has its first batch: imports, compiling."""
    persistent: bool = False
    spread: float = 0.1
    """Of a batch's work: standard deviation of its logarithm."""
    slow_every: int = 0
    """Every so many steps is slow, and takes ``slow_step`` times as long; the same for batches with ``slow_work``."""
    slow_step: float = 1.0
    slow_work: float = 1.0
    held: float = 0.0
    """Of another thread's work for each batch, that cannot run while the step holds the GIL."""
    images: int = 32
    bytes: int = 1 << 20
    seed: int = 0
    samples: list[Sample] = field(default_factory=list)

    def run(self) -> Measured:
        return _Simulation(self).run()

    def rate(self) -> float:
        """Images a second, but for the first batches of each epoch, one of each worker."""
        return measured_rate(self.run())


def measured_rate(measured: Measured) -> float:
    first = max(measured.loaders[0].num_workers, 1)
    known = [batch for batch in measured.batches if batch.step_ns is not None]
    steady = [batch for batch in known if batch.number >= (1 if batch.epoch else 2) * first]
    if len(steady) // first * first < len(known) / 4:
        steady = [batch for batch in known if batch.number >= first]
    steady = steady[len(steady) % min(first, len(steady)) :]  # whole turns of the workers
    spent = sum(batch.wait_ns + (batch.copy_ns or 0) + (batch.step_ns or 0) for batch in steady)
    return sum(batch.images for batch in steady) / spent * 1e9


class _Actor:
    """A process: a generator of phases, and of ``None`` while it waits for another."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.left = 0.0
        self.wants = 0.0
        self.stage = ""
        self.blocked = False
        self.waits = "idle" if name else "wait"
        self.stages: dict[str, Spent] = {}
        self.began = 0.0
        self.cpu = self.delayed = self.first_delayed = 0.0
        self.first = Spent()
        self.steps: Generator[Phase | None, None, None]
        self.ended = False


class _Simulation:
    def __init__(self, pipeline: Pipeline) -> None:
        self.p = pipeline
        self.now = self.others = 0.0
        self.random = random.Random(pipeline.seed)
        self.measured = Measured(backend="cpu", machine=Machine(cores=pipeline.cores, cores_all=pipeline.cores))
        self.loader = Loader(
            0, pipeline.images, pipeline.workers, pipeline.prefetch if pipeline.workers else None, False,
            pipeline.persistent, "fork" if pipeline.workers else "none", "Simulated", pipeline.batches, draws=True,
        )  # fmt: skip
        self.waiting: list[deque[int]] = []
        self.finished: set[int] = set()
        self.made = [Spent() for _ in range(pipeline.workers)]
        self.count = [0] * pipeline.workers

    def run(self) -> Measured:
        p = self.p
        self.main = _Actor(0)
        workers = [_Actor(1 + number) for number in range(p.workers)]
        self.actors = [self.main, *workers]
        self.packed: list[deque[int]] = [deque() for _ in workers]
        self.pipe: deque[int] = deque()
        self.waiting = [deque() for _ in range(p.workers)]
        self.starting = [True] * p.workers
        for actor in workers:
            actor.steps = self.worker(actor.name - 1)
        self.main.steps = self.training()
        for worker in workers if p.packing[0] or p.receive else ():
            sender = _Actor(worker.name)
            sender.waits, sender.stages, sender.steps = "", worker.stages, self.sender(worker.name - 1)
            self.actors.append(sender)
        for actor in self.actors:
            self.advance(actor)
        while not self.main.ended:
            self.tick()
        seconds = self.now / 1e3
        for actor in (self.main, *workers):
            threads = [each for each in self.actors if each.name == actor.name]
            actor.cpu = sum(each.cpu for each in threads)
            actor.delayed = sum(each.delayed for each in threads) - actor.first_delayed
            worker = actor.name - 1 if actor.name else None
            self.measured.processes.append(
                Process(
                    100 + actor.name,
                    "worker" if actor.name else "main",
                    None,
                    0 if actor.name else None,
                    worker,
                    seconds,
                    actor.cpu / 1e3,
                    1,
                    actor.stages,
                    p.images * (p.batches * p.epochs if worker is None else self.count[worker]),
                    None if worker is None else self.made[worker],
                    actor.delayed / 1e3,
                    first=None if worker is None else actor.first,
                )
            )
        if p.held:
            self.measured.processes[0].gil = Spent()
            for batch in self.measured.batches:
                self.measured.processes[0].gil.add(batch.step_ns or 0)
        self.measured.seconds = seconds
        self.measured.loaders.append(self.loader)
        used = sum(actor.cpu for actor in self.actors) + self.others
        self.measured.machine.busy = min(used / self.now / p.cores, 1.0)
        self.measured.samples = p.samples
        return self.measured

    def tick(self) -> None:
        """To the next end of a phase: who wants cores has an equal share of them."""
        running = [actor for actor in self.actors if not actor.blocked and not actor.ended]
        wanted = sum(actor.wants for actor in running) + self.p.rivals
        share = min(1.0, self.p.cores / wanted) if wanted else 1.0
        ahead = min(actor.left / (share if actor.wants else 1.0) for actor in running)
        self.now += ahead
        self.others += ahead * share * self.p.rivals
        ended = []
        for actor in running:
            actor.left -= ahead * (share if actor.wants else 1.0)
            actor.cpu += ahead * share * actor.wants
            actor.delayed += ahead * (1 - share) * actor.wants
            if actor.left <= 1e-9:
                ended.append(actor)
        for actor in ended:
            self.close(actor)
            self.advance(actor)
        for actor in self.actors:
            if actor.blocked and not actor.ended:
                self.advance(actor)

    def close(self, actor: _Actor) -> None:
        if actor.stage and self.now > actor.began:
            actor.stages.setdefault(actor.stage, Spent()).add(int((self.now - actor.began) * MS))
        actor.stage = ""

    def advance(self, actor: _Actor) -> None:
        phase = next(actor.steps, ("", 0.0, -1.0))
        if phase is None:
            if not actor.blocked:
                actor.blocked, actor.began, actor.stage = True, self.now, actor.waits
            return
        if actor.blocked:
            self.close(actor)
            actor.blocked = False
        actor.stage, actor.left, actor.wants = phase
        actor.began = self.now
        actor.ended = actor.wants < 0

    def worker(self, number: int) -> Generator[Phase | None, None, None]:
        p = self.p
        while True:
            while not self.waiting[number]:
                yield None
            if self.starting[number]:
                self.starting[number] = False
                yield "", p.startup + 1e-6, 1.0
            batch, began, actor = self.waiting[number].popleft(), self.now, self.actors[1 + number]
            if not self.count[number]:
                yield "", p.once + 1e-6, 1.0
            factor = self.factor(batch)
            for stage, (spent, wants) in p.work.items():
                yield stage, spent * factor, wants
            self.count[number] += 1
            if self.count[number] <= FIRST:
                actor.first, actor.first_delayed = Spent(self.count[number], 0, int(actor.cpu * MS)), actor.delayed
            else:
                self.made[number].add(int((self.now - began) * MS))
            (self.packed[number].append if p.packing[0] or p.receive else self.finished.add)(batch)

    def sender(self, number: int) -> Generator[Phase | None, None, None]:
        while True:
            while not self.packed[number]:
                yield None
            batch = self.packed[number].popleft()
            yield "send", max(self.p.packing[0], 1e-6), self.p.packing[1]
            self.pipe.append(batch)
            while batch in self.pipe:
                yield None

    def factor(self, batch: int) -> float:
        """How many times as long as the others a batch takes."""
        p = self.p
        slow = p.slow_every and batch % p.slow_every == p.slow_every - 1
        return self.random.lognormvariate(-(p.spread**2) / 2, p.spread) * (p.slow_work if slow else 1.0)

    def training(self) -> Generator[Phase | None, None, None]:
        p = self.p
        whole = 0
        for epoch in range(p.epochs):
            began = self.now
            sent = 0
            self.finished.clear()
            self.starting = [epoch == 0 or not p.persistent] * p.workers
            if not epoch:
                yield "", p.once + 1e-6, 1.0
            for number in range(p.batches):
                cpu_before = self.main.cpu
                asked, copied = self.now, p.copy
                ahead = p.workers * p.prefetch
                while p.workers and sent < min(number + ahead, p.batches):
                    self.waiting[sent % p.workers].append(sent)
                    sent += 1
                if not p.workers:
                    factor = self.factor(number)
                    for stage, (spent, wants) in p.work.items():
                        yield stage, spent * factor, wants
                while p.workers and number not in self.finished:
                    if self.pipe:
                        yield "receive", max(p.receive, 1e-6), 1.0
                        self.finished.add(self.pipe.popleft())
                    else:
                        yield None
                self.finished.discard(number)
                if p.workers:
                    if sent < p.batches:  # a batch that was taken makes room for another
                        self.waiting[sent % p.workers].append(sent)
                        sent += 1
                    yield "unpack", p.unpack, 1.0
                if p.held:
                    yield "wait", p.held, 1.0
                waited = self.now - asked
                if number == 0:
                    self.loader.startup_ns.append(int((self.now - began) * MS))
                if copied:
                    yield "copy", copied, 0.0
                stepped, cpu = self.now, self.main.cpu
                slow = p.slow_every and whole % p.slow_every == p.slow_every - 1
                yield "step", max(p.step[0] * (p.slow_step if slow else 1.0), 1e-6), p.step[1]
                whole += 1
                last = number == p.batches - 1
                self.measured.batches.append(
                    BatchTimes(
                        0,
                        epoch,
                        number,
                        p.images,
                        int(asked * MS),
                        int(waited * MS),
                        p.bytes,
                        int(copied * MS) if copied else None,
                        None if last else int((self.now - stepped) * MS),
                        None if last else int((self.main.cpu - cpu) / max(p.step[1], 1.0) * MS),
                        None if last else int((self.main.cpu - cpu) * MS),
                        cpu_ns=int(cpu_before * MS) if number % 8 == 1 else None,
                    )
                )
