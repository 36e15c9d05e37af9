"""The verdict names what a simulated pipeline was made to be held back by, whatever its other figures."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from accel.profiling import predict
from accel.profiling.advice import advise, no_cure
from accel.profiling.measured import BatchTimes, Loader, Machine, Measured, Sample, Spent
from accel.profiling.verdict import BOTTLENECKS, judge
from tests.profiling.pipeline import Pipeline

SEEDS = range(25)
Work = dict[str, tuple[float, float]]

WAITS = ("read", "send")
"""Stages that take no core in the simulation."""


def work(rng: random.Random, most: str, milliseconds: float, share: float) -> Work:
    """Of a batch: so much, and this share of it in one stage."""
    others = [each for each in ("read", "record", "decode", "transform", "user", "collate", "send") if each != most]
    small = {each: rng.random() for each in rng.sample(others, 3)}
    left = milliseconds * (1 - share) / sum(small.values())
    times = {**{each: part * left for each, part in small.items()}, most: milliseconds * share}
    return {each: (time, 0.0 if each in WAITS else 1.0) for each, time in times.items()}


def base(rng: random.Random) -> Pipeline:
    # the first batches fill what is on its way: fewer batches than 50 would say nothing of long queues
    return Pipeline(
        spread=rng.uniform(0.02, 0.3), prefetch=rng.choice([2, 3, 4]), batches=rng.randint(40, 50), seed=rng.random()
    )


def costly(name: str) -> Callable[[random.Random], Pipeline]:
    """All cores busy with a stage that the step waits for."""

    def make(rng: random.Random) -> Pipeline:
        cores = rng.choice([1, 2, 4, 8])
        spent = rng.uniform(4, 40)
        made = work(rng, name, spent, rng.uniform(0.7, 0.9))
        on_core = sum(time * wants for time, wants in made.values())
        workers = cores + rng.randint(1, 2)
        step = on_core / cores * rng.uniform(0.05, 0.6)
        return replace(base(rng), work=made, cores=cores, workers=workers, step=(step, 0.0))

    return make


def slow(name: str) -> Callable[[random.Random], Pipeline]:
    """A stage that is slow of itself, whatever cores there are and however many workers."""

    def make(rng: random.Random) -> Pipeline:
        spent = rng.uniform(4, 60)
        workers = rng.choice([0, 1, 2, 4])
        made = work(rng, name, spent, rng.uniform(0.6, 0.95))
        step = spent / max(workers, 1) * rng.uniform(0.05, 0.6)
        return replace(base(rng), work=made, cores=rng.choice([2, 8, 32]), workers=workers, step=(step, 0.0))

    return make


def few(rng: random.Random) -> Pipeline:
    workers = rng.choice([0, 1, 2, 4])
    spent = rng.uniform(2, 20)
    made = work(rng, rng.choice(["decode", "transform", "record"]), spent, rng.uniform(0.5, 0.8))
    made = {each: (time, 1.0) for each, (time, _) in made.items()}
    step = spent / max(workers, 1) * rng.uniform(0.05, 0.6)
    return replace(base(rng), work=made, cores=rng.choice([16, 64]), workers=workers, step=(step, 0.0))


def bursts(rng: random.Random) -> Pipeline:
    workers, every = rng.choice([2, 3]), rng.choice([8, 12])
    spent = rng.uniform(4, 20)
    step = spent / workers * rng.uniform(0.2, 0.4)  # quick steps, and one that all the workers could use
    pipeline = replace(base(rng), prefetch=1, workers=workers, cores=8, work={"decode": (spent, 1.0)})
    return replace(pipeline, step=(step, 0.0), slow_every=every, slow_step=every * spent / workers / step * 1.3)


def short_epochs(rng: random.Random) -> Pipeline:
    pipeline = replace(base(rng), batches=rng.randint(5, 12), epochs=rng.randint(3, 5), startup=rng.uniform(200, 900))
    return replace(pipeline, work=work(rng, "decode", 8, 0.6), cores=8, step=(rng.uniform(5, 20), 0.0))


def copies(rng: random.Random) -> Pipeline:
    step = rng.uniform(3, 20)
    return replace(base(rng), copy=step * rng.uniform(0.3, 2), step=(step, 0.0), work=work(rng, "decode", 1, 0.6))


def computing(rng: random.Random) -> Pipeline:
    workers, spent = rng.choice([1, 2, 4]), rng.uniform(1, 20)
    step = spent / workers * rng.uniform(1.4, 6)
    pipeline = replace(base(rng), work=work(rng, rng.choice(["decode", "user", "read"]), spent, 0.6))
    return replace(pipeline, workers=workers, cores=8, step=(step, rng.choice([0.0, 1.0])))


def crowded(rng: random.Random) -> Pipeline:
    workers = rng.choice([2, 4])
    threads = rng.choice([4.0, 8.0])
    pipeline = replace(base(rng), cores=2, workers=workers, step=(rng.uniform(1, 5), 0.0))
    return replace(pipeline, work={"transform": (rng.uniform(3, 10), threads), "read": (0.5, 0.0)})


def holding(rng: random.Random) -> Pipeline:
    step = rng.uniform(6, 30)
    pipeline = replace(base(rng), step=(step, 1.0), held=step * rng.uniform(0.3, 1), workers=2, cores=8)
    return replace(pipeline, work=work(rng, "decode", step * 0.5, 0.6))


PLANTED: dict[str, Callable[[random.Random], Pipeline]] = {
    **{name: costly(name) for name in ("record", "decode", "transform")},
    **{name: slow(name) for name in ("read", "user", "collate", "send")},
    "workers": few,
    "prefetch": bursts,
    "startup": short_epochs,
    "copy": copies,
    "step": computing,
    "threads": crowded,
    "gil": holding,
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_name(name: str) -> None:
    found = []
    for seed in SEEDS:
        pipeline = PLANTED[name](random.Random(seed))
        verdict = judge(pipeline.run())
        if verdict.bottleneck != name:
            found.append((verdict.bottleneck, verdict.why, pipeline))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize(("work", "step", "name"), [(90.0, 40.0, "decode"), (30.0, 40.0, "step")])
def test_a_step_that_workers_leave_no_core_is_not_what_is_slow(work: float, step: float, name: str) -> None:
    """It waits for a core and not for a batch; what takes most of the cores is named."""
    pipeline = Pipeline({"decode": (work, 1.0)}, (step, 1.0), workers=4, cores=2)
    verdict = judge(pipeline.run())
    assert verdict.flow is not None
    assert verdict.flow.wait < 0.1 * verdict.flow.period
    assert verdict.bottleneck == name, verdict.why


def test_every_name_is_planted_somewhere() -> None:
    assert {*PLANTED, "shm", "none"} == set(BOTTLENECKS)


def test_shared_memory_that_is_full() -> None:
    measured = Pipeline(work={"send": (20.0, 0.0)}, step=(2.0, 0.0), bytes=40 << 20).run()
    assert judge(measured).bottleneck == "send"
    measured.backend, measured.machine.shm_free = "torchvision", 30_000_000
    verdict = judge(measured)
    assert verdict.bottleneck == "shm"
    assert "30 MB free" in verdict.why
    assert [each.change for each in advise(measured, verdict)] == [{"backend": "cpu"}, None]


def test_workers_that_died_for_want_of_shared_memory() -> None:
    measured = Measured(backend="torchvision", failed="RuntimeError: unable to allocate shared memory(shm) for file x")
    verdict = judge(measured)
    assert verdict.bottleneck == "shm"
    assert [each.change for each in advise(measured, verdict)] == [{"backend": "cpu"}, None]
    assert judge(Measured(failed="KeyError: 'x'")).bottleneck == "none"
    assert judge(Measured(failed="KeyError: Caught one.\n  File x\nKeyError: 'x'\n")).why.endswith("with KeyError: 'x'")


def test_slots_that_ran_out() -> None:
    measured = Pipeline(work={"send": (20.0, 0.0)}, step=(2.0, 0.0)).run()
    reason = "workers found no room in the memory that they use again; a batch took new shared memory"
    measured.counters = {"fallbacks": {reason: 3}}
    assert judge(measured).bottleneck == "send"
    measured.counters = {"fallbacks": {reason: 70}}
    assert judge(measured).bottleneck == "shm"


def test_too_little_to_judge() -> None:
    assert judge(Measured()).bottleneck == "none"
    first = BatchTimes(0, 0, 0, 32, 0, 10**9, step_ns=10**6)
    measured = Measured(batches=[first], loaders=[Loader(0)], machine=Machine())
    verdict = judge(measured)
    assert verdict.bottleneck == "none"
    assert advise(measured, verdict) == []
    assert no_cure("none")


def test_the_first_batch_of_an_epoch_does_not_count() -> None:
    pipeline = Pipeline(work={"decode": (2.0, 1.0)}, step=(10.0, 0.0), batches=50)
    measured = pipeline.run()
    measured.batches[0].wait_ns = 10**12
    assert judge(measured).bottleneck == "step"
    for batch in measured.batches[1:4]:  # the other worker's, and the second of each
        batch.wait_ns = 10**12
    assert judge(measured).bottleneck == "step"
    measured.batches[5].wait_ns = 10**12  # the first of a whole number of turns
    assert judge(measured).bottleneck != "step"


def test_a_training_of_one_long_epoch_is_not_held_back_by_its_start() -> None:
    pipeline = Pipeline(work={"decode": (2.0, 1.0)}, step=(10.0, 0.0), batches=50, startup=2000)
    assert judge(pipeline.run()).bottleneck == "step"  # it may be what is done once a process
    measured = replace(pipeline, epochs=3).run()
    assert judge(measured).bottleneck == "startup"  # if an epoch has 50 batches
    measured.loaders[0].length = 20_000
    assert judge(measured).bottleneck == "step"


def test_workers_that_stay_start_once() -> None:
    made = replace(short_epochs(random.Random(0)), persistent=True)
    assert judge(made.run()).bottleneck != "startup"


def test_the_hottest_statement_is_named() -> None:
    samples = [Sample("/home/u/train.py", 57, "__getitem__", "    boxes = json.load(file)", 101, 90)]
    samples += [Sample("/home/u/train.py", 12, "__getitem__", "x = 1", pid, 50) for pid in (101, 102)]
    measured = replace(slow("user")(random.Random(1)), samples=samples, workers=2).run()
    verdict = judge(measured)
    assert verdict.bottleneck == "user"
    assert "train.py:12 x = 1" in verdict.why  # 100 of 190: counted over processes


def test_what_is_not_measured_is_no_evidence() -> None:
    """Without what only Linux tells, and without the workers' stages, the verdict says less and nothing wrong."""
    measured = slow("read")(random.Random(3)).run()
    for process in measured.processes:
        process.delayed_s = process.cpu_s = process.gil = process.made = None
    assert judge(measured).bottleneck == "read"
    for process in measured.processes:
        process.stages = {}
    verdict = judge(measured)
    assert verdict.bottleneck == "none"
    assert verdict.stage is None


def keys(measured: Measured) -> set[str]:
    """What is advised to change."""
    return {key for each in advise(measured, judge(measured)) for key in each.change or {}}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_what_goes_through_a_pipe_is_not_made_faster_by_more_of_it(workers: int, spread: float) -> None:
    """The main process and who sends a large message are busy with it until it is read, however many are ahead."""
    pipeline = Pipeline(
        {"collate": (0.5, 1.0)}, (5.0, 0.0), packing=(4.0, 1.0), receive=8.0, unpack=1.5, workers=workers, spread=spread
    )
    measured = pipeline.run()
    verdict = judge(measured)
    assert verdict.bottleneck == "send"
    assert "read and unpack" in verdict.why
    assert not keys(measured) & {"num_workers", "prefetch_factor"}
    for changed in (replace(pipeline, prefetch=8), replace(pipeline, workers=2 * workers)):
        assert changed.rate() == pytest.approx(pipeline.rate(), rel=0.05)


def test_workers_pack_beside_each_other() -> None:
    pipeline = Pipeline({"decode": (1.0, 1.0)}, (2.0, 0.0), packing=(20.0, 0.0), workers=1, cores=8)
    measured = pipeline.run()
    verdict = judge(measured)
    assert (verdict.bottleneck, verdict.stage) == ("send", "send")
    assert keys(measured) == {"num_workers"}
    assert verdict.flow is not None
    gain = predict.gain(verdict.flow, workers=4)
    assert gain == pytest.approx(replace(pipeline, workers=4).rate() / pipeline.rate(), rel=0.1)


def test_views_of_samples_are_no_more_batches() -> None:
    """A collate function may make several images of each sample that a worker counts."""
    measured = Pipeline({"decode": (4.0, 1.0)}, (2.0, 0.0), workers=2, cores=8).run()
    its = judge(measured).flow
    for batch in measured.batches:
        batch.images *= 8
    views = judge(measured).flow
    assert its is not None
    assert views is not None
    assert (views.stages, views.cpu_made, views.alone) == (its.stages, its.cpu_made, its.alone)


def test_a_batch_that_took_long_to_make_is_not_taken_to_be_sent_for_long() -> None:
    """Of a few batches one stands apart: what all compute, most of it to send, does not grow with it. Also where it was
    not timed how messages are read."""
    pipeline = Pipeline({"user": (0.5, 0.0)}, (5.0, 0.0), packing=(6.0, 1.0), receive=5.0, workers=2, batches=26)
    measured = pipeline.run()
    for worker in measured.processes[1:]:
        assert worker.made is not None
        worker.made.add(8_000_000)
        worker.made.add(8_000_000)
    assert "prefetch_factor" not in keys(measured)
    stages = measured.processes[0].stages
    reading = stages.pop("receive")
    stages["wait"] = Spent(reading.count, reading.ns, reading.ns // 2)
    assert judge(measured).bottleneck == "send"
    assert "prefetch_factor" not in keys(measured)


def test_what_is_read_from_a_pipe_is_unpacking() -> None:
    """A large message fills the pipe, so the main process computes while it waits, and more of it ahead is no help."""
    measured = Pipeline(work={"decode": (1.0, 1.0), "send": (6.0, 6.0)}, step=(5.0, 0.0), workers=2, cores=8).run()
    wait = measured.processes[0].stages["wait"]
    for batch in measured.batches:
        batch.wait_ns = int(9e6)
    wait.ns, wait.cpu_ns = int(9e6) * wait.count, int(6e6) * wait.count
    for worker in measured.processes[1:]:
        worker.stages["idle"] = Spent(80, int(12e6 * 80))
    verdict = judge(measured)
    assert (verdict.bottleneck, verdict.why.count("read and unpack")) == ("send", 1)
    wait.cpu_ns = 0
    assert "read and unpack" not in judge(measured).why


def test_who_asked_for_pixels_is_said() -> None:
    measured = costly("decode")(random.Random(0)).run()
    assert "one at a time" not in judge(measured).why
    measured.counters = {"computed early": 10**6}
    assert "1000000 images were computed one at a time, because something asked" in judge(measured).why
    measured.counters["computed early by"] = {"rare (data.py:3)": 1, "dark (data.py:37)": 10**6 - 1}
    assert "because dark (data.py:37) asked for their pixels" in judge(measured).why


def test_a_loader_that_is_new_for_each_epoch_is_to_be_kept() -> None:
    """``persistent_workers`` alone would bring nothing, also where it is set."""
    pipeline = Pipeline(work={"decode": (8.0, 1.0)}, step=(6.0, 0.0), startup=900, epochs=4, batches=10, cores=8)
    for persistent in (False, True):
        measured = pipeline.run()
        measured.loaders[0].renewed, measured.loaders[0].persistent = True, persistent
        verdict = judge(measured)
        assert verdict.bottleneck == "startup"
        (advice,) = [each for each in advise(measured, verdict) if "persistent_workers" in each.text]
        assert advice.text.startswith("keep one DataLoader")
        assert advice.change is None
