"""Predictions beside the same pipeline simulated under the other setting; advice that is made of them."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from accel.profiling import predict
from accel.profiling.advice import MOST, Advice, advise, candidates
from accel.profiling.flow import Flow, flow
from accel.profiling.measured import Measured, Sample, Trial
from accel.profiling.verdict import judge
from tests.profiling.pipeline import Pipeline, measured_rate

WITHIN = 0.15
SHARE = 0.9
CPU = {"backend": "cpu"}


def pipelines(count: int, seed: int) -> Iterator[tuple[Pipeline, random.Random]]:
    """Pipelines of all kinds: any stages, machines, workers, bursts."""
    rng = random.Random(seed)
    for number in range(count):
        stages = rng.sample(["read", "record", "decode", "transform", "user", "collate", "send"], 3)
        waits = {stage for stage in stages if stage in ("read", "send") or (stage == "user" and rng.random() < 0.5)}
        pipeline = Pipeline(
            work={stage: (rng.choice([0.5, 1, 2, 5, 10]), float(stage not in waits)) for stage in stages},
            step=(rng.choice([1, 3, 8, 20]), rng.choice([0.0, 0.0, 1.0])),
            copy=rng.choice([0, 0, 1]),
            workers=rng.choice([0, 1, 2, 2, 4, 8]),
            prefetch=rng.choice([1, 2, 2, 4]),
            cores=rng.choice([2, 2, 4, 8, 16]),
            batches=50,
            spread=rng.choice([0.02, 0.1, 0.4]),
            slow_every=rng.choice([0, 0, 8]),
            slow_step=rng.choice([1, 10]),
            slow_work=rng.choice([1, 4]),
            seed=number,
        )
        yield pipeline, rng


def near(errors: list[float]) -> float:
    return sum(abs(error) <= WITHIN for error in errors) / len(errors)


def flow_of(measured: Measured) -> Flow:
    found = flow(measured)
    assert found is not None
    return found


def rate(measured: Measured, **changes: Any) -> float:
    """Images a second, predicted under the setting that was measured, or another one."""
    its = flow_of(measured)
    return predict.rate(its, replace(predict.present(its), **changes))


def changing(measured: Measured, change: str | dict[str, Any], among: Any = advise) -> list[Advice]:
    """The advice to make this change, and no other, or to change this option."""
    found = among(measured, judge(measured))
    if isinstance(change, str):
        return [each for each in found if change in (each.change or {})]
    return [each for each in found if each.change == change]


def test_another_number_of_workers_and_batches_ahead() -> None:
    errors = []
    for pipeline, rng in pipelines(150, 1):
        measured = pipeline.run()
        workers, ahead = rng.choice([1, 2, 3, 4, 6, 12]), rng.choice([1, 2, 4, 8])
        errors.append(rate(measured, workers=workers) / replace(pipeline, workers=workers).rate() - 1)
        if pipeline.workers:
            errors.append(rate(measured, prefetch=ahead) / replace(pipeline, prefetch=ahead).rate() - 1)
    assert near(errors) >= 0.95


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_done_once_is_not_done_for_every_batch(workers: int) -> None:
    """Imports, compiling: 24 batches are few beside it."""
    work = {"decode": (8.0, 1.0), "user": (8.0, 0.0)}
    pipeline = Pipeline(work, (3.0, 0.3), workers=workers, once=150.0, batches=24)
    measured = pipeline.run()
    its = flow_of(measured)
    assert its.cpu_made == pytest.approx(8e6, rel=0.1)
    assert its.cpu_main == pytest.approx(0.9e6 + 0.1e6 * (workers > 0), rel=0.1)
    assert rate(measured, workers=6) == pytest.approx(replace(pipeline, workers=6, batches=60).rate(), rel=WITHIN)


def test_no_more_than_each_side_can_do() -> None:
    """Bursts that come at random in the model and in turn in fact: it makes too much of the present ones."""
    slow = {"slow_every": 8, "slow_work": 20.0, "spread": 0.02}
    pipeline = Pipeline({"user": (10.0, 0.0)}, (60.0, 0.0), workers=1, prefetch=1, batches=48, **slow)  # type: ignore[arg-type]
    measured = pipeline.run()
    for prefetch in (4, 8, 12):
        found = rate(measured, prefetch=prefetch)
        assert found <= 1.001 * pipeline.images / 60.1e-3
        assert found == pytest.approx(replace(pipeline, prefetch=prefetch).rate(), rel=WITHIN)


def test_the_present_setting_is_what_was_measured() -> None:
    for pipeline, _ in pipelines(20, 2):
        measured = pipeline.run()
        assert rate(measured) == pytest.approx(measured_rate(measured), rel=1e-6)


@pytest.mark.parametrize("rivals", [1.0, 6.0])
def test_other_programs_want_the_cores_as_well(rivals: float) -> None:
    """What competes for the cores has its share of them under any setting."""
    errors = []
    for pipeline, rng in pipelines(60, 5):
        shared = replace(pipeline, rivals=rivals)
        measured, workers = shared.run(), rng.choice([1, 2, 3, 4, 6, 12])
        errors.append(rate(measured, workers=workers) / replace(shared, workers=workers).rate() - 1)
        if shared.work.get("decode", (0, 0.0))[1]:
            measured, after = switched(shared, 3.3)
            errors += [(each.predicted_rate or 0.0) / after - 1 for each in changing(measured, CPU, among=candidates)]
    assert near(errors) >= SHARE


def test_no_cores_are_taken_from_other_programs() -> None:
    """More workers would have a larger share of a machine that others are busy on; that is not advised."""
    for rivals, advised in ((0.0, True), (8.0, False)):
        pipeline = Pipeline({"decode": (20.0, 1.0)}, (2.0, 0.0), workers=1, cores=2, rivals=rivals)
        measured = pipeline.run()
        assert bool(changing(measured, "num_workers")) == advised
        more = rate(measured, workers=3)
        assert more == pytest.approx(replace(pipeline, workers=3).rate(), rel=WITHIN)
        assert more > 1.3 * rate(measured)


def test_workers_that_wait_are_advised_on_a_busy_machine() -> None:
    pipeline = Pipeline({"read": (40.0, 0.0), "decode": (2.0, 1.0)}, (2.0, 0.0), workers=1, cores=2, rivals=8.0)
    assert changing(pipeline.run(), "num_workers")


def test_a_collate_function_that_waits() -> None:
    """It reads files, say: more workers wait beside each other, however few the cores are."""
    pipeline = Pipeline({"collate": (40.0, 0.0), "decode": (2.0, 1.0)}, (2.0, 0.0), workers=1, cores=2)
    measured = pipeline.run()
    for each in measured.processes:
        if "collate" in each.stages:
            each.stages["collate"].cpu_ns = 0
    assert rate(measured, workers=6) == pytest.approx(replace(pipeline, workers=6).rate(), rel=WITHIN)
    assert judge(measured).bottleneck == "collate"
    assert changing(measured, "num_workers")


def test_rates_are_of_whole_turns_of_the_workers() -> None:
    """In each of them one batch is waited for, and the others are there at once."""
    pipeline = Pipeline(work={"user": (160.0, 0.0)}, step=(1.0, 0.0), workers=8, spread=0.001, batches=50)
    assert flow_of(pipeline.run()).rate == pytest.approx(8 * pipeline.images / 0.160, rel=0.02)


def test_the_end_of_workers_is_part_of_an_epoch() -> None:
    measured = Pipeline(work={"decode": (8.0, 1.0)}, step=(6.0, 0.0), startup=300, epochs=4, batches=10, cores=8).run()
    before = advise(measured, judge(measured))[0]
    measured.loaders[0].ended_ns = [200_000_000] * 4
    after = advise(measured, judge(measured))[0]
    assert after.change == before.change == {"persistent_workers": True}
    assert after.rate is not None
    assert before.rate is not None
    assert 320 / after.rate == pytest.approx(320 / before.rate + 0.2)
    assert after.predicted_rate == before.predicted_rate


FIELDS = {"num_workers": "workers", "prefetch_factor": "prefetch", "persistent_workers": "persistent"}


def carried_out(pipeline: Pipeline, advice: Advice) -> float | None:
    """Images a second with a piece of advice followed, simulated; None where the simulation has no such thing."""
    if advice.change is None or not advice.change.keys() <= FIELDS.keys():
        return None
    changed = replace(pipeline, **{FIELDS[name]: value for name, value in advice.change.items()})
    if not advice.whole_epochs:  # some turns of the workers
        changed = replace(changed, batches=max(changed.batches, 10 * changed.workers))
    measured = changed.run()
    if not advice.whole_epochs:
        return measured_rate(measured)
    its = flow(measured)
    return its.epoch_rate if its else None


def test_what_is_advised_helps_as_predicted() -> None:
    errors, bounds = [], []
    for pipeline, _ in pipelines(150, 3):
        measured = pipeline.run()
        found = advise(measured, judge(measured))
        assert len(found) <= MOST
        for each in found:
            rate = carried_out(pipeline, each)
            if rate is None or each.predicted_rate is None:
                continue
            assert rate > 0.95 * each.rate, (each, pipeline)  # no advice that does harm
            if each.at_most:
                bounds.append(min(each.predicted_rate / rate - 1, 0.0))
            else:
                errors.append(each.predicted_rate / rate - 1)
    assert len(errors) > 30
    assert len(bounds) > 3
    assert near(errors) >= SHARE
    assert near(bounds) >= 0.95


def test_what_is_advised_helps_where_messages_are_large() -> None:
    errors = []
    for each, rng in pipelines(50, 8):
        work = {stage: its for stage, its in each.work.items() if stage != "send"}  # a thread of its own packs
        pipeline = replace(
            each, work=work, workers=max(each.workers, 1), packing=(rng.choice([0.5, 2, 6, 12]), 1.0), batches=100,
            receive=rng.choice([0.5, 2, 7, 15]), unpack=rng.choice([0.1, 1.5]), spread=rng.choice([0.1, 0.8]),
            slow_work=1.0,
        )  # fmt: skip
        measured = pipeline.run()
        for advice in advise(measured, judge(measured)):
            rate = carried_out(pipeline, advice)
            if rate is not None and advice.predicted_rate is not None and advice.rate:
                assert rate > advice.rate, (advice, pipeline)
                errors.append(advice.predicted_rate / rate - 1)
    assert len(errors) > 10
    assert near(errors) >= SHARE


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rivals", [0.0, 6.0])
@pytest.mark.parametrize("stage", ["user", "collate"])
def test_the_bound_without_somebodys_code_holds(stage: str, workers: int, rivals: float) -> None:
    """Also where what is left is faster then, by finding its data in the caches; and other programs may end."""
    work = {stage: (120.0, 1.0), "decode": (40.0, 1.0)}
    samples = [Sample("their.py", 7, "slow", "burn()", process, 20) for process in (100, 101, 102)]
    pipeline = Pipeline(work, (3.0, 0.0), workers=workers, cores=4, rivals=rivals, samples=samples)
    measured = pipeline.run()
    (found,) = [each for each in candidates(measured, judge(measured)) if each.text.startswith("without their.py:7")]
    assert found.at_most
    assert found.predicted_rate is not None
    warm = (40.0 - 0.15 * (pipeline.images if stage == "user" else 1), 1.0)
    best = replace(pipeline, work={"decode": warm}, rivals=0.0).rate()
    assert 0.97 * best <= found.predicted_rate <= 1.2 * best  # what batches take is drawn


@pytest.mark.parametrize("cpu_s", [0.0, None])
def test_processes_that_only_waited_for_a_core(cpu_s: float | None) -> None:
    """What share of a core they get is unknown then."""
    measured = Pipeline(cores=4).run()
    for process in measured.processes:
        process.cpu_s, process.delayed_s = cpu_s, 1.0
    found = flow(measured)
    assert found is not None
    assert 0 < found.cores <= found.shared == 4


def test_no_advice_where_the_step_is_all() -> None:
    measured = Pipeline(work={"decode": (1.0, 1.0)}, step=(20.0, 0.0)).run()
    verdict = judge(measured)
    assert verdict.bottleneck == "step"
    assert advise(measured, verdict) == []


def test_workers_change_the_crops_and_prefetch_does_not() -> None:
    few = Pipeline(work={"decode": (10.0, 1.0)}, step=(1.0, 0.0), cores=16).run()
    assert changing(few, "num_workers")[0].bit_identical is False
    few.loaders[0].draws = False
    assert advise(few, judge(few))[0].bit_identical is True
    burst = Pipeline(work={"decode": (8.0, 1.0)}, step=(3.0, 0.0), slow_every=16, slow_step=20, prefetch=1).run()
    assert changing(burst, "prefetch_factor")[0].bit_identical is True


def test_no_option_that_does_not_apply() -> None:
    """Without workers there is nothing to prefetch or to keep; without a GPU nothing to pin or to compute on."""
    for pipeline, _ in pipelines(60, 4):
        measured = replace(pipeline, workers=0, startup=100.0, epochs=2).run()
        for each in advise(measured, judge(measured)):
            assert (each.change or {}).keys() <= {"num_workers"}, each


def test_short_epochs_are_predicted() -> None:
    pipeline = Pipeline(work={"decode": (8.0, 1.0)}, step=(6.0, 0.0), startup=300, epochs=4, batches=10, cores=8)
    measured = pipeline.run()
    (first, *_) = advise(measured, judge(measured))
    assert first.change == {"persistent_workers": True}
    assert first.whole_epochs
    assert first.predicted_rate is not None
    changed = flow_of(replace(pipeline, persistent=True, epochs=8).run())
    assert first.predicted_rate == pytest.approx(changed.epoch_rate, rel=WITHIN)


def switched(pipeline: Pipeline, factor: float) -> tuple[Measured, float]:
    """A pipeline under "torchvision" with a trial of a backend that decodes so many times as fast; and its rate."""
    measured = pipeline.run()
    measured.backend = "torchvision"
    kept = {stage: its for stage, its in pipeline.work.items() if stage != "send"}  # a trial sends nothing
    spent = sum(time for time, _ in kept.values()) / pipeline.images / 1e3
    cpu = sum(time * wants for time, wants in kept.values()) / pipeline.images / 1e3
    decode = pipeline.work["decode"][0] / pipeline.images / 1e3
    quicker = decode * (1 - 1 / factor)
    measured.trials["cpu"] = Trial(16, spent - quicker, cpu - quicker, spent, cpu)
    after = replace(pipeline, work={**pipeline.work, "decode": (pipeline.work["decode"][0] / factor, 1.0)})
    return measured, after.rate()


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("cores", [2, 16])
@pytest.mark.parametrize("step", [1.0, 12.0])
def test_another_backend_by_a_trial(workers: int, cores: int, step: float) -> None:
    pipeline = Pipeline({"decode": (60.0, 1.0), "collate": (3.0, 1.0)}, (step, 0.0), workers=workers, cores=cores)
    measured, after = switched(pipeline, 3.3)
    (found,) = changing(measured, CPU)
    assert found.bit_identical is True
    assert found.predicted_rate == pytest.approx(after, rel=WITHIN)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("step", [15.0, 40.0])
def test_a_step_that_computes_is_slowed_by_workers(workers: int, step: float) -> None:
    """Less of theirs leaves it the cores."""
    pipeline = Pipeline({"decode": (90.0, 1.0)}, (step, 1.0), workers=workers, cores=2, spread=0.3)
    measured, after = switched(pipeline, 3.3)
    assert flow_of(measured).stepping.lasts() == pytest.approx(step * 1e6, rel=0.1)
    (found,) = changing(measured, CPU, among=candidates)
    assert found.predicted_rate == pytest.approx(after, rel=WITHIN)


def test_memory_of_batches_that_the_step_frees() -> None:
    """In the step under "torchvision", and in none where it is used again."""
    pipeline = Pipeline({"decode": (100.0, 1.0)}, (30.0, 1.0), workers=2, cores=4)
    measured, _ = switched(pipeline, 10)
    measured.trials["cpu"].base_freed_s = 10e-3 / pipeline.images
    (found,) = changing(measured, CPU, among=candidates)
    after = replace(pipeline, work={"decode": (10.0, 1.0)}, step=(20.0, 1.0)).rate()
    assert found.predicted_rate == pytest.approx(after, rel=WITHIN)


@pytest.mark.parametrize("step", [15.0, 40.0])
def test_steps_on_several_threads_have_bounds(step: float) -> None:
    """How much they are slowed is not known: less beside them brings at least so much, and more of it at most."""
    pipeline = Pipeline({"decode": (90.0, 1.0)}, (step, 2.0), workers=1, cores=2, spread=0.3)
    measured, after = switched(pipeline, 3.3)
    found = {next(iter(each.change)): each for each in candidates(measured, judge(measured)) if each.change}
    assert found["backend"].at_least
    assert not found["backend"].at_most
    assert 0.8 * after < (found["backend"].predicted_rate or 0.0) < 1.05 * after
    measured.loaders[0].num_workers = 0  # nobody is beside them then
    assert not any(each.at_least for each in changing(measured, CPU, among=candidates))


def test_a_short_step_has_no_bounds_whatever_its_threads() -> None:
    measured, _ = switched(Pipeline({"decode": (90.0, 1.0)}, (2.0, 3.0), workers=1, cores=4), 3.3)
    found = [each for each in candidates(measured, judge(measured)) if each.change]
    assert len(found) > 1
    assert not any(each.at_least or each.at_most for each in found)


def test_more_workers_beside_several_threads_bring_at_most() -> None:
    pipeline = Pipeline({"decode": (80.0, 1.0)}, (20.0, 3.0), workers=1, cores=4)
    (found,) = changing(pipeline.run(), "num_workers")
    assert found.change is not None
    assert found.at_most
    assert (found.predicted_rate or 0.0) > 0.95 * replace(pipeline, workers=found.change["num_workers"]).rate()


def test_memory_that_comes_anew_in_workers_and_not_in_the_trial() -> None:
    """The system's time is as much as in the trial; the rest becomes quicker as in it."""
    pipeline = Pipeline({"decode": (100.0, 1.0)}, (5.0, 0.0), workers=2, cores=4)
    measured, _ = switched(replace(pipeline, work={"decode": (60.0, 1.0)}), 6)
    trial = measured.trials["cpu"]
    measured = pipeline.run()
    measured.backend, measured.trials = "torchvision", {"cpu": trial}
    for process in measured.processes:
        process.system = 0.4 if process.role == "worker" else 0.0
    (found,) = changing(measured, CPU, among=candidates)
    after = replace(pipeline, work={"decode": (10.0, 1.0)}).rate()
    assert found.predicted_rate == pytest.approx(after, rel=WITHIN)


def test_a_step_that_was_disturbed_is_less_so() -> None:
    """As the last of an epoch shows, beside which nobody computes."""
    pipeline = Pipeline({"decode": (100.0, 1.0)}, (30.0, 1.0), workers=2, cores=4)
    measured, _ = switched(pipeline, 10)
    measured.batches[-1].step_ns = 20_000_000
    (found,) = changing(measured, CPU, among=candidates)
    after = replace(pipeline, work={"decode": (10.0, 1.0)}, step=(21.0, 1.0)).rate()
    assert found.predicted_rate == pytest.approx(after, rel=0.05)


def test_another_backend_whatever_else_is_done() -> None:
    """What waits goes on waiting, and what a trial does not do is not made faster."""
    errors = []
    for pipeline, _ in pipelines(80, 6):
        if pipeline.work.get("decode", (0, 0.0))[1]:
            measured, after = switched(pipeline, 3.3)
            errors += [(each.predicted_rate or 0.0) / after - 1 for each in changing(measured, CPU, among=candidates)]
    assert len(errors) > 10
    assert near(errors) >= 0.95


def test_files_that_are_slow_to_read_stay_so() -> None:
    """In a trial they were read before, so the trial is quicker than what was measured."""
    pipeline = Pipeline({"read": (90.0, 0.0), "decode": (60.0, 1.0)}, (1.0, 0.0), workers=2, cores=4)
    measured = pipeline.run()
    measured.backend = "torchvision"
    image = 60 / pipeline.images / 1e3
    measured.trials["cpu"] = Trial(16, image / 3, image / 3, image, image)
    (found,) = changing(measured, CPU)
    after = replace(pipeline, work={"read": (90.0, 0.0), "decode": (20.0, 1.0)}).rate()
    assert found.predicted_rate == pytest.approx(after, rel=WITHIN)


def test_the_gpu_where_there_is_one() -> None:
    measured = Pipeline(work={"decode": (20.0, 1.0)}, step=(2.0, 0.0)).run()
    assert not changing(measured, {"backend": "cuda"})
    measured.machine.gpu, measured.backends = "NVIDIA H100", ["cpu", "cuda"]
    (found,) = changing(measured, {"backend": "cuda"})
    assert found.at_most
    measured.backend = "cuda"
    assert not changing(measured, {"backend": "cuda"})


def test_accels_own_threads() -> None:
    measured = Pipeline(work={"decode": (20.0, 1.0)}, step=(2.0, 0.0), workers=0, cores=4).run()
    measured.options = {"threads": 1}
    (found,) = changing(measured, {"threads": "auto"})
    assert found.bit_identical is True
    measured.options = {"threads": 4}
    assert not changing(measured, "threads")
