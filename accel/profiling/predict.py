"""Predicting rates: the flow of batches simulated, with the measured times, under other settings.

A batch begins when its worker is done with the one before, and is taken when the main process is done with the one
before: two maxima a batch, over the steps as they were measured and over batches drawn from the measured histogram. The
computing of batches is done by all cores, one batch after another, so that the cores bound the rate also in a burst.
The prediction is the measured rate times the ratio of the simulated rates under the other setting and the present one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from accel.profiling.flow import Flow, trimmed
from accel.profiling.measured import Spent
from accel.profiling.stepping import Stepping

_BATCHES = 400
_LITTLE = 0.05  # the part of the time below which a step's computing does not matter


@dataclass(frozen=True)
class Setting:
    """The settings that a rate is predicted for; times are nanoseconds for a batch, as in the flow."""

    workers: int
    prefetch: int
    made: float
    """The time to make a batch in a worker that never waits for a core."""
    cpu_made: float
    busy_less: float = 0.0
    """The time to subtract from the main process's waiting with a batch."""
    freed: float = 0.0
    """The time to subtract from the main process's computing with a batch."""
    startup: float = 0.0


def present(flow: Flow) -> Setting:
    """The settings that were measured."""
    workers = flow.loader.num_workers
    return Setting(workers, flow.loader.prefetch_factor or 2, flow.alone, flow.cpu_made, startup=flow.startup)


def rate(flow: Flow, setting: Setting, *, whole_epochs: bool = False, modest: bool = False) -> float:
    """The images a second of all ranks under a setting.

    Args:
        whole_epochs: whether to include how epochs begin.
        modest: whether other programs keep their cores; else it competes for them.
    """
    now = present(flow)
    before, after = _period(flow, now), _period(flow, setting)
    least_now = min(_least(flow, now), flow.period)
    least = _least(flow, setting) * (least_now / _least(flow, now) if least_now else 1.0)
    period = flow.period * after / before
    if before > max(flow.period, 1.02 * least_now):  # the model overestimates how much both sides wait
        period = max(period, least + (after - least) * (flow.period - least_now) / (before - least_now))
    period = max(period, _on_cores(flow, setting, modest), least)
    if whole_epochs:
        period += setting.startup / flow.length
    return flow.images / period * 1e9 * flow.ranks


def unsure(flow: Flow) -> bool:
    """Whether it matters that it is not known how much slower a step on several threads is beside other processes."""
    return flow.stepping.on_several and flow.stepping.work > _LITTLE * flow.period


def with_fixed_step(flow: Flow, *, computes: bool) -> Flow:
    """The flow with a step that takes as long as now, whatever computes beside it. Predictions are then a lower bound
    if less will compute beside it and it ``computes``, an upper one if more will and it does not."""
    return replace(flow, stepping=flow.stepping.fixed(sum(flow.busy) / len(flow.busy), computes=computes))


def gain(flow: Flow, **changes: float) -> float:
    """The predicted rate with these fields of the setting changed, relative to the present one."""
    return rate(flow, replace(present(flow), **changes)) / flow.rate  # type: ignore[arg-type]


def _period(flow: Flow, setting: Setting) -> float:
    """The time for a batch under a setting according to the model alone, in nanoseconds."""
    step, taking = flow.stepping.without(setting.freed), unpacked(flow) - setting.busy_less
    on_cores = _on_cores(flow, setting)
    if setting.workers and flow.loader.num_workers == 0:  # one thread in place of a pool
        setting = replace(setting, made=max(setting.made, setting.cpu_made))
    if setting.workers == 0:
        computed = min(setting.cpu_made, setting.made)
        made = setting.made + computed * (_slower(flow, 1, 0, 0.0) - 1)
        return max(made + max(step.lasts(_slower(flow, step.threads, 0, 0.0)) + taking, 0.0), on_cores)
    period = 0.0  # those that wait for others leave the cores to them
    for _ in range(4):
        made, steps = _on_shared_cores(flow, setting, step, period)
        longer = steps / max(sum(flow.busy) / len(flow.busy), 1.0)
        busy = [max(each * longer + taking, 0.0) for each in flow.busy]
        found = _carried_on(flow, setting, busy, made, on_cores)
        period = (period + found) / 2 if period else found
    return period


def bound(flow: Flow, setting: Setting) -> float:
    """An upper bound of the images a second under a setting: no process waits for another, or for other programs."""
    flow = replace(flow, stepping=flow.stepping.at_best())
    on_cores = (setting.cpu_made + flow.stepping.cpu()) / flow.shared
    return flow.images / max(_least(flow, setting), on_cores) * 1e9 * flow.ranks


def _least(flow: Flow, setting: Setting) -> float:
    """The least time for a batch, if neither side waits for the other; independent of the simulation."""
    step = flow.stepping.without(setting.freed).lasts() + unpacked(flow, computed=True)
    if not setting.workers:
        return step + setting.made
    return max(step, max(setting.made, flow.sending + received(flow)) / setting.workers)


def _on_cores(flow: Flow, setting: Setting, modest: bool = False) -> float:
    """The time for a batch if all cores work on it: a lower bound, however it is made."""
    entitled = flow.cores if modest else flow.shared
    if flow.rivals and not modest:
        entitled = max(entitled * (n := setting.workers + 1) / (n + flow.rivals), flow.cores)
    return (setting.cpu_made + flow.stepping.without(setting.freed).cpu()) / max(entitled, flow.in_use)


def _carried_on(flow: Flow, setting: Setting, busy: list[float], typical: float, on_cores: float) -> float:
    """The simulated time for a batch made by workers, each of which takes ``typical`` for one."""
    made = _drawn(flow, typical)
    # computing grows with the time to make a batch, except for sending it and in the main process
    growing = min(max(setting.cpu_made - flow.sending, 0.0), setting.made) / max(setting.cpu_made + flow.cpu_main, 1.0)
    ahead = setting.workers * setting.prefetch
    reading, taking = received(flow), unpacked(flow)
    done: list[float] = []
    taken_at: list[float] = []
    sends = [0.0] * setting.workers  # the time until each worker sends: a large message, until it is read
    free = computed = 0.0
    for number in range(_BATCHES + ahead):
        request = taken_at[number - ahead] + taking if number >= ahead else 0.0
        before = done[number - setting.workers] if number >= setting.workers else 0.0
        start = max(request, before)
        spent = made[number % _BATCHES]
        longer = spent / typical - 1 if typical else 0.0
        computed = max(computed, start) + on_cores * (1 + growing * longer)
        done.append(max(start + spent, computed))
        worker = number % setting.workers
        taken_at.append(max(done[-1], sends[worker]) + flow.sending)
        taken_at[-1] = max(taken_at[-1], free)
        sends[worker] = taken_at[-1] + reading
        free = taken_at[-1] + busy[number % len(busy)]
    return (taken_at[-1] - taken_at[ahead - 1]) / _BATCHES


def _on_shared_cores(flow: Flow, setting: Setting, step: Stepping, period: float) -> tuple[float, float]:
    """The times of a batch in a worker and of a step, if a batch comes once a period, or as soon as it can, and all
    that compute at a time have equal shares of the cores."""
    computed = min(setting.cpu_made, setting.made)
    made, steps = setting.made, step.lasts()
    for _ in range(8):
        each = max(period, made / setting.workers, steps)
        in_worker = (made - setting.made + computed) / (setting.workers * each)  # the probability that each computes
        in_step = (steps - step.waits) / each
        with_step = setting.made + computed * (_slower(flow, 1 + step.threads, setting.workers - 1, in_worker) - 1)
        without = setting.made + computed * (_slower(flow, 1, setting.workers - 1, in_worker) - 1)
        made = (made + in_step * with_step + (1 - in_step) * without) / 2
        steps = (steps + step.lasts(_slower(flow, step.threads, setting.workers, in_worker))) / 2
    return made, steps


def _slower(flow: Flow, threads: float, workers: int, likely: float) -> float:
    """The mean factor by which computing takes longer beside so many threads and workers, each of which computes with
    the probability ``likely``: as they begin in turn, about the mean number of them computes at any time."""
    count, more = divmod(workers * likely, 1)
    demand = [threads + each + flow.rivals for each in (count, count + 1)]
    fewer, most = (max(1.0, each / flow.shared) for each in demand)
    return fewer + more * (most - fewer)


def unpacked(flow: Flow, *, computed: bool = False) -> float:
    """The main process's time to read a batch from a pipe and unpack it; ``computed``: of unpacking only the CPU time,
    if known."""
    if flow.main is None or not flow.loader.num_workers:
        return 0.0
    spent, waited = (flow.main.stages.get(name, Spent()) for name in ("unpack", "wait"))
    ns = spent.ns if spent.cpu_ns is None or not computed else min(spent.cpu_ns, spent.ns)
    each = ns / max(spent.count, 1)
    if "receive" in flow.main.stages:
        return min(each + received(flow), flow.wait)
    return min(max(each, (waited.cpu_ns or 0) / max(waited.count, 1)), flow.wait)  # only the CPU time is known


def received(flow: Flow) -> float:
    """The time to read a batch from a pipe, for the main process and, as the pipe holds little, for the sender."""
    spent = flow.main.stages.get("receive") if flow.main else None
    return trimmed(spent).mean if spent else 0.0


def _drawn(flow: Flow, mean: float) -> list[float]:
    """Random times of batches, distributed as measured, with this mean."""
    histogram = flow.made.histogram
    if not sum(histogram):
        return [mean] * _BATCHES
    middles = [2 ** ((index + 0.5) / 4) for index in range(len(histogram))]
    drawn = random.Random(0).choices(middles, histogram, k=_BATCHES)
    factor = mean * _BATCHES / sum(drawn)
    return [each * factor for each in drawn]
