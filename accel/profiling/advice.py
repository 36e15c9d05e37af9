"""Advice: at most three changes that are predicted to help, with their costs, and whether results stay the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from accel.profiling import predict
from accel.profiling.flow import Flow
from accel.profiling.measured import Measured, Trial
from accel.profiling.verdict import HELPS, Verdict, hottest, loading, place

MOST = 3
_MOST_WORKERS, _MOST_AHEAD = 64, 16
_REFILL_NS = 200_000  # the time to read 2 MB, the size of a core's own caches, at 10 GB a second
_NEARLY = 0.97  # the part of the best rate at which a cheaper setting is preferred
_CROPS = "other random numbers: crops change"
_SAME = "results stay bit-identical"


@dataclass
class Advice:
    """One change.

    Attributes:
        text: what to do.
        change: the same as data: ``num_workers``, ``prefetch_factor``, ``persistent_workers`` of the DataLoader,
            ``backend``, ``threads`` of ``set_image_backend``; None if it is a change to the user's code or machine.
        rate: images a second now; None if no batches came.
        predicted_rate: images a second with the change; None if it is not known. Only an upper or a lower bound if
            ``at_most`` or ``at_least`` is set. Both rates leave out how epochs begin, unless ``whole_epochs`` is set.
        cost: the cost of the change, in words.
        bit_identical: whether results stay the same in every bit; None if not known.
    """

    text: str
    change: dict[str, Any] | None
    rate: float | None
    predicted_rate: float | None
    cost: str
    bit_identical: bool | None
    at_most: bool = False
    at_least: bool = False
    whole_epochs: bool = False

    @property
    def gain(self) -> float:
        return (self.predicted_rate or 0.0) / self.rate if self.rate else 0.0


def advise(measured: Measured, verdict: Verdict) -> list[Advice]:
    """The changes predicted to help, the most helpful first; a change to the user's code comes after the others."""
    found = [each for each in candidates(measured, verdict) if each.predicted_rate is None or each.gain > HELPS]
    found.sort(
        key=lambda each: (each.predicted_rate is None, each.at_most, -round(20 * each.gain), not each.bit_identical)
    )
    return found[:MOST]


def candidates(measured: Measured, verdict: Verdict) -> list[Advice]:
    """All changes to consider, whether they help or not."""
    its = verdict.flow
    if verdict.bottleneck == "shm" and measured.failed:
        return list(_shared_memory(measured, its))
    if its is None or verdict.bottleneck in ("none", "step", "gil"):
        return []
    return list(_threads(measured, its) if verdict.bottleneck == "threads" else _changes(measured, its, verdict))


def results(bit_identical: bool | None) -> str:
    """Words for whether results stay the same."""
    return {True: _SAME, False: _CROPS, None: "results: not known"}[bit_identical]


def no_cure(bottleneck: str) -> str:
    """The text to show where no advice is given."""
    return {
        "none": "Nothing to advise.",
        "step": "The input keeps up: only a faster step makes this training faster.",
        "copy": "Nothing of the DataLoader's or accel's makes these copies faster here.",
        "gil": "No option helps: the step has to let the GIL go, or do its work in another process.",
        "read": "No option helps: faster storage does, or fewer and larger files.",
        "user": "No option helps: it is the dataset's own code.",
    }.get(bottleneck, "No option of the DataLoader or accel is predicted to help here.")


def _changes(measured: Measured, its: Flow, verdict: Verdict) -> Iterator[Advice]:
    if verdict.bottleneck == "copy":
        yield from _copying(its)
        return
    yield from _workers(its, verdict)
    if verdict.bottleneck != "startup":  # there an epoch is over before more batches ahead could matter
        yield from _prefetch(its)
    yield from _persistent(its)
    yield from _backend(measured, its)
    yield from _pool(measured, its)
    yield from _code(measured, its, verdict)
    if verdict.bottleneck == "shm":
        yield from _shared_memory(measured, its)


def _cheapest(its: Flow, field: str, values: Iterable[int]) -> tuple[int, float] | None:
    """The least of the values that gives nearly the best rate, and that rate. Other programs keep their cores, unless
    making a batch is mostly waiting."""
    now = predict.present(its)
    rates = {value: predict.rate(its, replace(now, **{field: value}), modest=_computes(its)) for value in values}
    return next(((value, rate) for value, rate in rates.items() if rate >= _NEARLY * max(rates.values())), None)


def _computes(its: Flow) -> bool:
    """Whether making a batch is mostly computing, not waiting."""
    return its.cpu_made > 0.5 * its.alone


def _bytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:.0f} MB"


def _workers(its: Flow, verdict: Verdict) -> Iterator[Advice]:
    """More workers, if cores are idle or the workers mostly wait."""
    now, ahead = its.loader.num_workers, its.loader.prefetch_factor or 2
    most = min(_MOST_WORKERS, max(4 * int(its.cores), 4))
    if its.bytes and its.machine.memory_free:
        most = min(most, now + int(its.machine.memory_free / 2 / its.bytes / ahead / its.ranks))
    best = _cheapest(its, "workers", range(now + 1, most + 1))
    if best is None or verdict.bottleneck in ("shm", "startup"):
        return
    number, rate = best
    if rate < HELPS * its.rate:
        return
    bound = predict.unsure(its)
    if bound:
        setting = replace(predict.present(its), workers=number)
        rate = predict.rate(predict.with_fixed_step(its, computes=False), setting, modest=_computes(its))
    cores = its.cpu_made * rate / its.ranks / its.images / 1e9 - its.cpu_made / its.period
    cost = f"{number - now} processes, {max(cores, 0.0):.1f} cores"
    if its.bytes:
        cost += f", {_bytes((number - now) * ahead * its.bytes)}"
    same = its.loader.draws is False
    bound |= verdict.stage == "read" and its.stages["read"] > 0.5 * sum(its.stages.values())
    yield Advice(f"num_workers={number}", {"num_workers": number}, its.rate, rate, cost, same, at_most=bound)


def _prefetch(its: Flow) -> Iterator[Advice]:
    """More batches ahead, if batches are made or used in bursts."""
    now = its.loader.prefetch_factor or 2
    best = _cheapest(its, "prefetch", range(now + 1, _MOST_AHEAD + 1)) if its.loader.num_workers else None
    if best is not None:
        number, rate = best
        more = (number - now) * its.loader.num_workers * (its.bytes or 0)
        cost = _bytes(more) if its.bytes else "memory for the batches"
        yield Advice(f"prefetch_factor={number}", {"prefetch_factor": number}, its.rate, rate, cost, True)


def _persistent(its: Flow) -> Iterator[Advice]:
    """Persistent workers, if epochs are short; for a loader made anew for each epoch, that it be kept."""
    if its.loader.num_workers and (its.loader.renewed or not its.loader.persistent):
        setting = replace(predict.present(its), startup=its.fill)
        rate = predict.rate(its, setting, whole_epochs=True)
        cost, same = "the workers' memory between epochs", its.loader.draws is False
        change: dict[str, Any] | None = {"persistent_workers": True}
        text = "persistent_workers=True"
        if its.loader.renewed:
            change, text = None, "keep one DataLoader for all epochs, with persistent_workers=True"
        yield Advice(text, change, its.epoch_rate, rate, cost, same, whole_epochs=True)


def _backend(measured: Measured, its: Flow) -> Iterator[Advice]:
    """Another backend: one that was tried, with the trial's result; and the GPU's, with an upper bound."""
    bound = predict.unsure(its) and its.loader.num_workers > 0
    fixed = predict.with_fixed_step(its, computes=True) if bound else its
    for name, trial in measured.trials.items():
        text, rate = f'accel.set_image_backend("{name}")', _switched(fixed, trial)
        yield Advice(text, {"backend": name}, its.rate, rate, "nothing", True, at_least=bound)
    if its.machine.gpu and "cuda" in measured.backends and measured.backend != "cuda":
        computed = its.undelayed("decode", "transform", "kernels")
        now = predict.present(its)
        best = replace(its, stepping=its.stepping.at_best())
        rate = predict.rate(best, replace(now, made=max(now.made - computed, 0.02 * now.made), cpu_made=0.0))
        text, change = 'accel.set_image_backend("cuda")', {"backend": "cuda"}
        yield Advice(text, change, its.rate, rate, "time and memory of the GPU", True, at_most=True)


def _switched(its: Flow, trial: Trial) -> float:
    """The rate under a backend that was tried. Computing, and waiting for a core for it, get faster as in the trial.
    Other waiting changes only by what the trial saw, which does not include files that are slow the first time. The
    system's CPU time is the trial's, as memory may be allocated anew for each image there, or not at all."""
    now, images = predict.present(its), its.images * 1e9
    busy, base = min(trial.cpu_s, trial.seconds), max(min(trial.base_cpu_s, trial.base_seconds), 1e-9)
    computed = min(now.cpu_made, its.alone)
    waited = max(its.alone - computed - (trial.base_seconds - base) * images, 0.0) + (trial.seconds - busy) * images
    scaled = now.cpu_made * trial.cpu_s / max(trial.base_cpu_s, 1e-9)
    own = (trial.cpu_s - trial.system_s) / max(trial.base_cpu_s - trial.base_system_s, 1e-9)
    cpu_made = max(now.cpu_made - _by_system(its), 0.0) * own + trial.system_s * images
    made = computed * busy / base * cpu_made / max(scaled, 1.0) + waited
    freed = (trial.base_freed_s - trial.freed_s) * images if now.workers else 0.0
    if now.workers and now.cpu_made:  # the less the workers compute beside the step, the less it is slowed
        freed += its.stepping.longer * max(1 - cpu_made / now.cpu_made, 0.0)
    after = replace(now, made=made, cpu_made=cpu_made, freed=freed)
    rate, free = 0.0, predict.unpacked(its) - predict.unpacked(its, computed=True)
    for _ in range(3):  # unpacking waits while workers are at work, which depends on the rate
        rate = predict.rate(its, after)
        at_work = min(made * rate / (images * its.ranks * max(now.workers, 1)), 1.0)
        after = replace(after, busy_less=free * (1 - at_work))
    return rate


def _by_system(its: Flow) -> float:
    """The system's part of the CPU time to make a batch."""
    makers = its.workers if its.loader.num_workers else [its.main] if its.main is not None else []
    share = sum(each.system or 0.0 for each in makers) / max(len(makers), 1)
    return share * (its.cpu_made + (0.0 if its.loader.num_workers else its.cpu_main))


def _pool(measured: Measured, its: Flow) -> Iterator[Advice]:
    """More of accel's own threads, if the main process loads the data itself, on a number that is fixed."""
    threads, cores = _fixed_threads(measured), int(its.cores)
    if its.loader.num_workers == 0 and measured.backend not in ("torchvision", "cuda", "dali") and threads:
        computed = its.undelayed("decode", "transform", "kernels")
        now = predict.present(its)
        made = now.made - computed * (1 - threads / cores) if cores > threads else now.made
        rate = predict.rate(its, replace(now, made=max(made, 0.02 * now.made)))
        cost = f"{cores - threads} cores"
        yield Advice('accel\'s threads="auto"', {"threads": "auto"}, its.rate, rate, cost, True)


def _fixed_threads(measured: Measured) -> int | None:
    threads = measured.options.get("threads")
    return threads if isinstance(threads, int) else None


def _copying(its: Flow) -> Iterator[Advice]:
    """Copies from pinned memory that run beside the step, if there is a GPU."""
    if its.machine.gpu:
        rate = its.rate * its.period / (its.period - its.copy)
        change = None if its.loader.pin_memory else {"pin_memory": True}
        text = "images.to(device, non_blocking=True)" + (", from pin_memory=True" if change else "")
        yield Advice(text, change, its.rate, rate, "pinned memory for the batches", True, at_most=True)


def _code(measured: Measured, its: Flow, verdict: Verdict) -> Iterator[Advice]:
    """Removing the user's function that has the most costly statement: the gain as an upper bound."""
    sample = hottest(measured)
    if verdict.stage in ("user", "collate") and sample is not None:
        where = sample.file, sample.function  # a loop has several statements
        found = [((each.file, each.function) == where, each.count) for each in loading(measured)]
        its_own = sum(count for inside, count in found if inside)
        others = sum(count for inside, count in found if not inside)
        others = max(others - 2 * others**0.5, 0.0)  # the least that so few samples allow, as the gain is a bound
        # all of accel's work is called by some statement of the user's
        less = min(its.alone * its_own / (its_own + others), its.undelayed(verdict.stage))
        now = predict.present(its)
        # the rest also gets faster, as the processor's caches are not displaced; more so if the core slept meanwhile
        sooner = (now.made - less) / 2
        refilled = _REFILL_NS * (its.images if verdict.stage == "user" else 1)
        less += min(sooner, refilled) if _computes(its) else sooner
        cpu, made = max(now.cpu_made - less, 0.0), max(now.made - less, 0.02 * now.made)
        rate = predict.bound(its, replace(now, made=made, cpu_made=cpu))
        text = f"without {place(sample)}, in {sample.function}"
        yield Advice(text, None, its.rate, rate, "a change of that code", None, at_most=True)


def _shared_memory(measured: Measured, its: Flow | None) -> Iterator[Advice]:
    """A larger /dev/shm, or a backend of accel's, whose memory for batches from workers /dev/shm does not limit."""
    size, rate = "", its.rate if its else None
    if its and its.bytes:
        size = f" of {_bytes(its.bytes * (its.loader.num_workers * (its.loader.prefetch_factor or 2) + 1))} or more"
    if measured.backend == "torchvision":
        yield Advice('accel.set_image_backend("cpu")', {"backend": "cpu"}, rate, None, "nothing", True)
    yield Advice(f"a larger /dev/shm{size} (docker run --shm-size)", None, rate, None, "memory", True)


def _threads(measured: Measured, its: Flow) -> Iterator[Advice]:
    """Fewer threads, if they wait for each other."""
    cores, threads = its.machine.cores, _fixed_threads(measured)
    if threads and threads > cores:
        yield Advice('accel\'s threads="auto"', {"threads": "auto"}, its.rate, None, "nothing", True)
    crowded = [each for each in measured.processes if ((each.cpu_s or 0) + (each.delayed_s or 0)) > 1.5 * each.seconds]
    if any(each.role == "worker" for each in crowded):
        text = "one thread in each worker: accel run --limit-threads, or cv2.setNumThreads(0) in worker_init_fn"
        yield Advice(text, None, its.rate, None, "nothing", None)
    if any(each.role == "main" for each in crowded):
        text = f"OMP_NUM_THREADS={max(cores - its.loader.num_workers, 1)} for the main process"
        yield Advice(text, None, its.rate, None, "nothing", None)
