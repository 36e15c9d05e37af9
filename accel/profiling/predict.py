"""What a change would bring: the flow of batches carried on, with the measured times, under other settings.

A loader deals batches to its workers in turn and takes them in turn; a worker may have ``prefetch_factor`` batches
that nobody has taken. So each batch is done when its worker has had the ones before, and is taken when the main
process has had the one before: two maxima a batch, over the steps as they were measured and over batches drawn from
the measured histogram. What batches compute is done by all cores one after the other, so that these bound the rate, in
a burst as well. What is predicted is the measured rate times the ratio of what
this says of the other setting and of the present one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from accel.profiling.flow import Flow, trimmed
from accel.profiling.measured import Spent
from accel.profiling.stepping import Stepping

_BATCHES = 400
_LITTLE = 0.05  # of the time


@dataclass(frozen=True)
class Setting:
    """What a rate is predicted for; times in nanoseconds for a batch, as the flow has them."""

    workers: int
    prefetch: int
    made: float
    """In a worker that never waits for a core."""
    cpu_made: float
    busy_less: float = 0.0
    """Taken off what the main process waits with a batch."""
    freed: float = 0.0
    """Taken off what the main process computes with a batch."""
    startup: float = 0.0


def present(flow: Flow) -> Setting:
    """The settings that were measured."""
    workers = flow.loader.num_workers
    return Setting(workers, flow.loader.prefetch_factor or 2, flow.alone, flow.cpu_made, startup=flow.startup)


def rate(flow: Flow, setting: Setting, *, whole_epochs: bool = False, modest: bool = False) -> float:
    """Images a second of all ranks under a setting.

    Args:
        whole_epochs: with their beginning; else once they run.
        modest: where it leaves other programs the cores that they have; else it competes for them.
    """
    now = present(flow)
    before, after = _period(flow, now), _period(flow, setting)
    least_now = min(_least(flow, now), flow.period)
    least = _least(flow, setting) * (least_now / _least(flow, now) if least_now else 1.0)
    period = flow.period * after / before
    if before > max(flow.period, 1.02 * least_now):  # it made too much of what the sides wait for each other
        period = max(period, least + (after - least) * (flow.period - least_now) / (before - least_now))
    period = max(period, _on_cores(flow, setting, modest), least)
    if whole_epochs:
        period += setting.startup / flow.length
    return flow.images / period * 1e9 * flow.ranks


def unsure(flow: Flow) -> bool:
    """Whether a step on several threads computes for so long that it matters how much slower it is beside others."""
    return flow.stepping.on_several and flow.stepping.work > _LITTLE * flow.period


def keeping(flow: Flow, *, computes: bool) -> Flow:
    """The flow with a step that takes as long as now whatever computes beside it: at least the rate of before or more
    comes of it where less will and it ``computes``; where more will and it does not, at most."""
    return replace(flow, stepping=flow.stepping.kept(sum(flow.busy) / len(flow.busy), computes=computes))


def gain(flow: Flow, **changes: float) -> float:
    """How many times as fast with these fields of the setting changed."""
    return rate(flow, replace(present(flow), **changes)) / flow.rate  # type: ignore[arg-type]


def _period(flow: Flow, setting: Setting) -> float:
    """Nanoseconds a batch takes under a setting, by the model alone."""
    step, taking = flow.stepping.without(setting.freed), unpacked(flow) - setting.busy_less
    on_cores = _on_cores(flow, setting)
    if setting.workers and flow.loader.num_workers == 0:  # one thread, where there was a pool
        setting = replace(setting, made=max(setting.made, setting.cpu_made))
    if setting.workers == 0:
        computed = min(setting.cpu_made, setting.made)
        made = setting.made + computed * (_slower(flow, 1, 0, 0.0) - 1)
        return max(made + max(step.lasts(_slower(flow, step.threads, 0, 0.0)) + taking, 0.0), on_cores)
    period = 0.0  # who waits for the others leaves the cores to them
    for _ in range(4):
        made, steps = _on_shared_cores(flow, setting, step, period)
        longer = steps / max(sum(flow.busy) / len(flow.busy), 1.0)
        busy = [max(each * longer + taking, 0.0) for each in flow.busy]
        found = _carried_on(flow, setting, busy, made, on_cores)
        period = (period + found) / 2 if period else found
    return period


def bound(flow: Flow, setting: Setting) -> float:
    """Images a second that no rate under a setting exceeds: nobody waits for another, nor other programs for a core."""
    flow = replace(flow, stepping=flow.stepping.at_best())
    on_cores = (setting.cpu_made + flow.stepping.cpu()) / flow.shared
    return flow.images / max(_least(flow, setting), on_cores) * 1e9 * flow.ranks


def _least(flow: Flow, setting: Setting) -> float:
    """What a batch takes at least where nobody waits for another: whatever the model said of the present setting."""
    step = flow.stepping.without(setting.freed).lasts() + unpacked(flow, computed=True)
    if not setting.workers:
        return step + setting.made
    return max(step, max(setting.made, flow.sending + received(flow)) / setting.workers)


def _on_cores(flow: Flow, setting: Setting, modest: bool = False) -> float:
    """What a batch takes of all cores: however it is made, no rate is higher."""
    entitled = flow.cores if modest else flow.shared
    if flow.rivals and not modest:
        entitled = max(entitled * (n := setting.workers + 1) / (n + flow.rivals), flow.cores)
    return (setting.cpu_made + flow.stepping.without(setting.freed).cpu()) / max(entitled, flow.in_use)


def _carried_on(flow: Flow, setting: Setting, busy: list[float], typical: float, on_cores: float) -> float:
    """The same for workers, where a batch takes ``typical`` in one."""
    made = _drawn(flow, typical)
    # what is computed to make a batch grows with it; to send it, and in the main process, it does not
    growing = min(max(setting.cpu_made - flow.sending, 0.0), setting.made) / max(setting.cpu_made + flow.cpu_main, 1.0)
    ahead = setting.workers * setting.prefetch
    reading, taking = received(flow), unpacked(flow)
    done: list[float] = []
    taken: list[float] = []
    sends = [0.0] * setting.workers  # until when each does: a large message until it is read
    free = computed = 0.0
    for number in range(_BATCHES + ahead):
        asked = taken[number - ahead] + taking if number >= ahead else 0.0
        before = done[number - setting.workers] if number >= setting.workers else 0.0
        begun = max(asked, before)
        spent = made[number % _BATCHES]
        longer = spent / typical - 1 if typical else 0.0
        computed = max(computed, begun) + on_cores * (1 + growing * longer)
        done.append(max(begun + spent, computed))
        worker = number % setting.workers
        taken.append(max(done[-1], sends[worker]) + flow.sending)
        taken[-1] = max(taken[-1], free)
        sends[worker] = taken[-1] + reading
        free = taken[-1] + busy[number % len(busy)]
    return (taken[-1] - taken[ahead - 1]) / _BATCHES


def _on_shared_cores(flow: Flow, setting: Setting, step: Stepping, period: float) -> tuple[float, float]:
    """How long a batch takes in a worker, and a step, where a batch comes once in a period or as soon as it can, and
    each of the workers and the step compute now and then: who computes has an equal share of the cores."""
    computed = min(setting.cpu_made, setting.made)
    made, steps = setting.made, step.lasts()
    for _ in range(8):
        each = max(period, made / setting.workers, steps)
        in_worker = (made - setting.made + computed) / (setting.workers * each)  # how likely each computes
        in_step = (steps - step.waits) / each
        with_step = setting.made + computed * (_slower(flow, 1 + step.threads, setting.workers - 1, in_worker) - 1)
        without = setting.made + computed * (_slower(flow, 1, setting.workers - 1, in_worker) - 1)
        made = (made + in_step * with_step + (1 - in_step) * without) / 2
        steps = (steps + step.lasts(_slower(flow, step.threads, setting.workers, in_worker))) / 2
    return made, steps


def _slower(flow: Flow, threads: float, workers: int, likely: float) -> float:
    """How many times as long computing takes, on average, where so many threads do, and each of the workers is likely
    to: they begin in turn, so they are as many as they are on average, or nearly."""
    count, more = divmod(workers * likely, 1)
    wanted = [threads + each + flow.rivals for each in (count, count + 1)]
    fewer, most = (max(1.0, each / flow.shared) for each in wanted)
    return fewer + more * (most - fewer)


def unpacked(flow: Flow, *, computed: bool = False) -> float:
    """What reading a batch from a pipe and unpacking it take of the main process; of unpacking, what is ``computed``,
    if that is known."""
    if flow.main is None or not flow.loader.num_workers:
        return 0.0
    spent, waited = (flow.main.stages.get(name, Spent()) for name in ("unpack", "wait"))
    ns = spent.ns if spent.cpu_ns is None or not computed else min(spent.cpu_ns, spent.ns)
    each = ns / max(spent.count, 1)
    if "receive" in flow.main.stages:
        return min(each + received(flow), flow.wait)
    return min(max(each, (waited.cpu_ns or 0) / max(waited.count, 1)), flow.wait)  # computing is all that is known


def received(flow: Flow) -> float:
    """What reading a batch from a pipe takes: of the main process, and of who sends it, for the pipe holds little."""
    spent = flow.main.stages.get("receive") if flow.main else None
    return trimmed(spent).ns / trimmed(spent).count if spent and spent.count else 0.0


def _drawn(flow: Flow, mean: float) -> list[float]:
    """Times of batches, spread as measured, with this mean."""
    histogram = flow.made.histogram
    if not sum(histogram):
        return [mean] * _BATCHES
    middles = [2 ** ((index + 0.5) / 4) for index in range(len(histogram))]
    drawn = random.Random(0).choices(middles, histogram, k=_BATCHES)
    factor = mean * _BATCHES / sum(drawn)
    return [each * factor for each in drawn]
