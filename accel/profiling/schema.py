"""The report as plain data, as ``--json`` writes it. docs/profiling.md describes the keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from accel.profiling.advice import Advice
from accel.profiling.flow import Flow
from accel.profiling.measured import STAGES, Measured, Spent, total
from accel.profiling.verdict import Verdict, loading

VERSION = 1
_PERCENTS = (50, 95, 99)
_STATEMENTS = 3


def content(
    measured: Measured, verdict: Verdict, advice: Sequence[Advice], tried: dict[str, Any] | None
) -> dict[str, Any]:
    """A report's data; None where something was not measured."""
    its = verdict.flow
    return {
        "version": VERSION,
        "backend": measured.backend,
        "options": measured.options,
        "bottleneck": verdict.bottleneck,
        "why": verdict.why,
        "seconds": measured.seconds,
        "images": sum(batch.images for batch in measured.batches),
        "batches": len(measured.batches),
        "workers": len({(each.rank, each.loader, each.worker) for each in measured.processes if each.role == "worker"}),
        "rate": its.rate if its else None,
        "epoch_rate": its.epoch_rate if its else None,
        "step": step(measured, its),
        "first": first(measured),
        "stages": stages(measured),
        "user": statements(measured),
        "machine": machine(measured, its),
        "loaders": [dataclasses.asdict(loader) for loader in measured.loaders],
        "advice": [dataclasses.asdict(each) for each in advice],
        "trials": [{"backend": name, **dataclasses.asdict(trial)} for name, trial in measured.trials.items()],
        "tried": tried,
        "failed": measured.failed,
        "counters": measured.counters,
    }


def step(measured: Measured, its: Flow | None) -> dict[str, Any] | None:
    """The parts of the main process's time for a batch, without the first batch of each epoch."""
    if its is None:
        return None
    chain = [
        batch
        for batch in measured.batches
        if batch.number > 0 and batch.step_ns is not None and batch.loader == its.loader.number
    ]
    parts: dict[str, tuple[float, list[int]]] = {
        "computing": (its.step, [batch.step_ns for batch in chain if batch.step_ns is not None]),
        "waiting": (its.wait, [batch.wait_ns for batch in chain]),
        "copying": (its.copy, [batch.copy_ns for batch in chain if batch.copy_ns is not None]),
    }
    result: dict[str, Any] = {"batches": its.count, "mean_ms": its.period / 1e6}
    for name, (mean, times) in parts.items():
        known = bool(times) and (name != "copying" or any(times) or _of(measured, "main", "copy") is not None)
        result[name] = (
            {"share": mean / its.period, "mean_ms": mean / 1e6, **_exact(times if not its.shifted else [])}
            if known
            else None
        )
    dry = [batch.dry for batch in chain if batch.dry is not None]
    result["dry"] = sum(dry) / len(dry) if dry else None
    return result


def first(measured: Measured) -> dict[str, Any]:
    """The times to the first batch of each epoch, from ``iter()`` on."""
    times = [each for loader in measured.loaders for each in loader.startup_ns]
    return {"batches": len(times), "mean_ms": sum(times) / len(times) / 1e6 if times else None, **_exact(times)}


def stages(measured: Measured) -> dict[str, Any]:
    """Own times of each stage: in the workers if they have it, else in the main process."""
    result: dict[str, Any] = {}
    for name in STAGES:
        spent = {role: _of(measured, role, name) for role in ("worker", "main")}
        where = "worker" if spent["worker"] is not None and (spent["worker"].count or spent["main"] is None) else "main"
        its = spent[where]
        result[name] = None if its is None else {"where": where, **_figures(its, _seconds(measured, where))}
    return result


def _of(measured: Measured, role: str, name: str) -> Spent | None:
    found = [each.stages[name] for each in measured.processes if each.role == role and name in each.stages]
    return total(found) if found else None


def _seconds(measured: Measured, role: str) -> float:
    return sum(each.seconds for each in measured.processes if each.role == role)


def _figures(spent: Spent, seconds: float) -> dict[str, Any]:
    return {
        "seconds": spent.ns / 1e9,
        "share": spent.ns / 1e9 / seconds if seconds else None,
        "count": spent.count,
        "mean_ms": spent.ns / spent.count / 1e6 if spent.count else None,
        **{f"p{percent}_ms": _ms(spent.percentile(percent)) for percent in _PERCENTS},
        "cpu_seconds": None if spent.cpu_ns is None else spent.cpu_ns / 1e9,
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _exact(times: Sequence[int]) -> dict[str, float | None]:
    ordered = sorted(times)
    last = len(ordered) - 1
    return {f"p{each}_ms": ordered[round(last * each / 100)] / 1e6 if ordered else None for each in _PERCENTS}


def statements(measured: Measured) -> list[dict[str, Any]]:
    """The user's most frequent statements in samples, with their shares of making batches or of the training loop."""
    makes = {id(sample) for sample in loading(measured)}
    counts: dict[tuple[str, str, int, str, str], int] = {}
    whole: dict[str, int] = {}
    for sample in measured.samples:
        where = "loading" if id(sample) in makes else "loop"
        key = where, sample.file, sample.line, sample.function, sample.text.strip()
        counts[key] = counts.get(key, 0) + sample.count
        whole[where] = whole.get(where, 0) + sample.count
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1]))
    names = ("where", "file", "line", "function", "text")
    rows = [{**dict(zip(names, key, strict=True)), "share": count / whole[key[0]]} for key, count in ordered]
    return [row for where in whole for row in [row for row in rows if row["where"] == where][:_STATEMENTS]]


def machine(measured: Measured, its: Flow | None) -> dict[str, Any]:
    """The machine, with the number of idle cores."""
    known = dataclasses.asdict(measured.machine)
    cores = measured.machine.cores
    known["idle_cores"] = None if measured.machine.busy is None else cores * (1 - measured.machine.busy)
    known["in_use"] = None if its is None else its.in_use * its.ranks
    return known
