"""What a step is, apart from who else computes."""

import pytest

from accel.profiling.measured import BatchTimes, Process
from accel.profiling.stepping import Stepping, stepping

MS = 1e6
COUNT = 24


def measured(
    busy: float, own: float | None, of_all: float, cpu: float, delayed: float | None, **kind: bool
) -> Stepping:
    """Of steps that all take so many milliseconds, of which so many are CPU time: of their thread, of all threads, of
    the whole process with what it does beside; and its threads' waiting for a core."""
    batches = []
    for number in range(COUNT):
        batch = BatchTimes(0, 0, number, 8, 0, 0, step_ns=int(busy * MS), cpu_ns=int((1 + number * cpu) * MS))
        if own is not None and number % 4 == 0:
            batch.step_cpu_ns, batch.step_cpu_of_all_ns = int(own * MS), int(of_all * MS)
        batches.append(batch)
    delayed_s = None if delayed is None else delayed * COUNT / 1e3
    main = Process(1, "main", cpu_s=cpu * COUNT / 1e3, images=8 * COUNT, delayed_s=delayed_s)
    return stepping(main, batches[1:], batches, busy * MS, alone=kind.get("alone", False))


def test_a_step_that_waits() -> None:
    its = measured(50, 2, 2, 3, 0.5)
    assert its.lasts() == pytest.approx(50 * MS, rel=0.02)
    assert its.lasts(3) == pytest.approx(54 * MS, rel=0.02)


@pytest.mark.parametrize("slower", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_who_else_computed_is_taken_off_and_put_on_again(slower: float, threads: int) -> None:
    true = Stepping(waits=4 * MS, work=20 * MS, threads=threads, rest=MS)
    busy, cpu = true.lasts(slower) / MS, true.cpu(slower) / MS
    own = (cpu - 1) / threads
    its = measured(busy, own, own * threads, cpu, (slower - 1) * own * threads * cpu / (cpu - 1))
    assert its.waits == pytest.approx(true.waits, rel=0.05)
    assert its.work == pytest.approx(true.work, rel=0.01)
    for other in (1.0, 1.5, 3.0):
        assert its.lasts(other) == pytest.approx(true.lasts(other), rel=0.02)
        assert its.cpu(other) == pytest.approx(true.cpu(other), rel=0.02)


def test_threads_that_wait_for_each_other_are_slowed_more() -> None:
    one, two = (Stepping(0, 20 * MS, threads) for threads in (1, 2))
    assert one.lasts(2) == 40 * MS
    assert one.lasts(2) < two.lasts(2) < 80 * MS
    assert one.cpu(2) == one.cpu(1)
    assert two.cpu(2) > two.cpu(1)


def test_work_that_one_thread_does_no_more() -> None:
    its = Stepping(MS, 30 * MS, 1.5, MS)
    assert its.without(0) == its
    less = its.without(10 * MS)
    assert less.lasts() == pytest.approx(21 * MS)
    assert less.cpu() == pytest.approx(its.cpu() - 10 * MS)
    assert its.without(90 * MS).lasts() == MS


def test_what_is_not_measured() -> None:
    """Without the system's word of who waited, nobody did; without CPU time of steps, all of it is theirs."""
    assert measured(50, 20, 20, 21, None).lasts() == 50 * MS
    its = measured(50, None, 0, 20, None)
    assert (its.work, its.lasts(), its.rest) == (pytest.approx(20 * MS), pytest.approx(50 * MS), 0)
    nothing = stepping(None, [], [], 50 * MS, alone=False)
    assert (nothing.work, nothing.lasts(), nothing.cpu()) == (0, 50 * MS, 0)


def test_what_a_pool_computes_behind_a_step_is_not_the_steps() -> None:
    assert measured(50, 20, 60, 61, 0).threads == pytest.approx(3)
    its = measured(50, 20, 60, 61, 0, alone=True)
    assert its.threads == 1
    assert its.rest == pytest.approx(41 * MS)


def test_a_step_that_is_kept_takes_as_long_whoever_computes() -> None:
    its = Stepping(4 * MS, 20 * MS, 2, MS, spent=61 * MS)
    kept = its.fixed(50 * MS, computes=True)
    assert kept.lasts() == kept.lasts(3) == 50 * MS
    assert kept.cpu() == kept.cpu(3) == 61 * MS
    free = its.fixed(50 * MS, computes=False)
    assert free.lasts(3) == 50 * MS
    assert free.cpu(3) == 0


def ended(*last: float, threads: int = 1) -> Stepping:
    """Steps of 40 ms, and those with the last batches of epochs of eight; a small batch is no such one."""
    batches = [
        BatchTimes(0, epoch, number, 8, 0, 0, step_ns=int((took if number == 7 else 40) * MS), step_cpu_ns=int(36 * MS),
              step_cpu_of_all_ns=int(threads * 36 * MS), cpu_ns=int(threads * 36 * (8 * epoch + number + 1) * MS))
        for epoch, took in enumerate(last) for number in range(8)
    ]  # fmt: skip
    batches.append(BatchTimes(0, len(last), 7, 3, 0, 0, step_ns=int(MS)))
    return stepping(None, batches[1:8], batches, 40 * MS, alone=False, length=8)


def test_the_last_step_of_an_epoch_is_alone() -> None:
    assert ended(30, 31, 90).alone == 31 * MS
    assert ended(31).longer == pytest.approx(9 * MS)
    assert ended(1).longer == pytest.approx(18 * MS)  # another kind of step: at most by half
    assert ended(90).longer == 0
    assert measured(50, 2, 2, 3, 0.5).alone is None


def test_several_threads_at_best() -> None:
    """They may have been late one after the other, where it is not known how long it takes alone."""
    its = ended(17, threads=2)
    assert its.on_several
    assert its.longer == 0
    assert its.at_best().lasts() == pytest.approx(17 * MS)
    late = Stepping(30 * MS, 20 * MS, 2, waits_alone=5 * MS)
    assert late.at_best().lasts() == 25 * MS
    one = Stepping(30 * MS, 20 * MS, 1, waits_alone=5 * MS)
    assert one.at_best() == one
