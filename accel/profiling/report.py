"""A report: measurements, verdict and advice, as attributes, a screen of text, a notebook's cell, or JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.profiling import screen
from accel.profiling.advice import Advice, advise
from accel.profiling.flow import Flow
from accel.profiling.measured import STAGES, Measured, Spent, total
from accel.profiling.verdict import Verdict, judge, loading

VERSION = 1
"""The version of ``to_dict``'s keys."""
_PERCENTS = (50, 95, 99)
_STATEMENTS = 3


class Report:
    """The bottleneck of a training, and how much changes would help.

    Until something was measured it is empty, and what it is asked raises ``RuntimeError``.
    ``str(report)`` is one screen of text, of 100 columns at most; a notebook shows the same.
    """

    def __init__(self, measured: Measured | None = None) -> None:
        self._measured = measured
        self._verdict: Verdict | None = None
        self._advice: list[Advice] | None = None
        self.tried: dict[str, Any] | None = None
        """The outcome of trying a piece of advice: ``text``, ``change``, ``predicted_rate`` and ``measured_rate``."""

    def fill(self, measured: Measured) -> None:
        """Set the measurements, and forget the verdict and advice on earlier ones."""
        self._measured, self._verdict, self._advice = measured, None, None

    @property
    def measured(self) -> Measured:
        """All measurements. Raises RuntimeError while there are none."""
        if self._measured is None:
            raise RuntimeError("nothing is measured yet: the report is made when the block of accel.profile() ends")
        return self._measured

    @property
    def verdict(self) -> Verdict:
        if self._verdict is None:
            self._verdict = judge(self.measured)
        return self._verdict

    @property
    def bottleneck(self) -> str:
        """The name of the bottleneck, one of those in docs/profiling.md."""
        return self.verdict.bottleneck

    @property
    def flow(self) -> Flow | None:
        return self.verdict.flow

    @property
    def advice(self) -> list[Advice]:
        """At most three changes that are predicted to help, the most helpful first."""
        if self._advice is None:
            self._advice = advise(self.measured, self.verdict)
        return self._advice

    @property
    def stages(self) -> dict[str, Any]:
        """The time of each stage: in the workers if they have it, else in the main process; None if not measured."""
        result: dict[str, Any] = {}
        for name in STAGES:
            workers, main = (_of(self.measured, role, name) for role in ("worker", "main"))
            where = "worker" if workers is not None and (workers.count or main is None) else "main"
            its = workers if where == "worker" else main
            seconds = sum(each.seconds for each in self.measured.processes if each.role == where)
            result[name] = None if its is None else {"where": where, **_figures(its, seconds)}
        return result

    @property
    def step(self) -> dict[str, Any] | None:
        """The division of a step into computing, waiting for input and copying, without the first batch of each epoch;
        None if there are too few batches."""
        its = self.flow
        if its is None:
            return None
        chain = [
            batch
            for batch in self.measured.batches
            if batch.number > 0 and batch.step_ns is not None and batch.loader == its.loader.number
        ]
        copies = [batch.copy_ns for batch in chain if batch.copy_ns is not None]
        parts = {
            "computing": (its.step, [batch.step_ns for batch in chain if batch.step_ns is not None]),
            "waiting": (its.wait, [batch.wait_ns for batch in chain]),
            "copying": (its.copy, copies if any(copies) or _of(self.measured, "main", "copy") is not None else []),
        }
        result: dict[str, Any] = {"batches": its.count, "mean_ms": its.period / 1e6}
        for name, (mean, times) in parts.items():
            exact = _exact([] if its.shifted else times)
            result[name] = {"share": mean / its.period, "mean_ms": mean / 1e6, **exact} if times else None
        dry = [batch.dry for batch in chain if batch.dry is not None]
        result["dry"] = sum(dry) / len(dry) if dry else None
        return result

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as docs/profiling.md describes it."""
        measured, its = self.measured, self.flow
        workers = {(each.rank, each.loader, each.worker) for each in measured.processes if each.role == "worker"}
        return {
            "version": VERSION,
            "backend": measured.backend,
            "options": measured.options,
            "bottleneck": self.bottleneck,
            "why": self.verdict.why,
            "seconds": measured.seconds,
            "images": sum(batch.images for batch in measured.batches),
            "batches": len(measured.batches),
            "workers": len(workers),
            "rate": its.rate if its else None,
            "epoch_rate": its.epoch_rate if its else None,
            "step": self.step,
            "first": _first(measured),
            "stages": self.stages,
            "user": _statements(measured),
            "machine": _machine(measured, its),
            "loaders": [dataclasses.asdict(loader) for loader in measured.loaders],
            "advice": [dataclasses.asdict(each) for each in self.advice],
            "trials": [{"backend": name, **dataclasses.asdict(trial)} for name, trial in measured.trials.items()],
            "tried": self.tried,
            "failed": measured.failed,
            "counters": measured.counters,
        }

    def to_json(self) -> str:
        """``to_dict()`` as text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def save(self, file: str | Path) -> None:
        """Write ``to_json()`` to a file, whose folder is made if there is none."""
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json(), encoding="utf-8")

    def show(self, file: Any = None) -> None:
        """Print the screen to ``file``, by default standard output."""
        screen.show(self.to_dict(), file)

    def __str__(self) -> str:
        return screen.text(self.to_dict()) if self._measured is not None else repr(self)

    def __repr__(self) -> str:
        return "Report(nothing measured yet)" if self._measured is None else f"Report(bottleneck={self.bottleneck!r})"

    def _repr_html_(self) -> str:
        return screen.html(self.to_dict()) if self._measured is not None else repr(self)


def _first(measured: Measured) -> dict[str, Any]:
    """The times to the first batch of each epoch, from ``iter()`` on."""
    times = [each for loader in measured.loaders for each in loader.startup_ns]
    return {"batches": len(times), "mean_ms": sum(times) / len(times) / 1e6 if times else None, **_exact(times)}


def _of(measured: Measured, role: str, name: str) -> Spent | None:
    found = [each.stages[name] for each in measured.processes if each.role == role and name in each.stages]
    return total(found) if found else None


def _figures(spent: Spent, seconds: float) -> dict[str, Any]:
    return {
        "seconds": spent.ns / 1e9,
        "share": spent.ns / 1e9 / seconds if seconds else None,
        "count": spent.count,
        "mean_ms": spent.mean / 1e6 if spent.count else None,
        **{f"p{percent}_ms": _ms(spent.percentile(percent)) for percent in _PERCENTS},
        "cpu_seconds": None if spent.cpu_ns is None else spent.cpu_ns / 1e9,
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _exact(times: Sequence[int]) -> dict[str, float | None]:
    ordered = sorted(times)
    last = len(ordered) - 1
    return {f"p{each}_ms": ordered[round(last * each / 100)] / 1e6 if ordered else None for each in _PERCENTS}


def _statements(measured: Measured) -> list[dict[str, Any]]:
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


def _machine(measured: Measured, its: Flow | None) -> dict[str, Any]:
    """The machine, with the number of idle cores."""
    known = dataclasses.asdict(measured.machine)
    cores = measured.machine.cores
    known["idle_cores"] = None if measured.machine.busy is None else cores * (1 - measured.machine.busy)
    known["in_use"] = None if its is None else its.in_use * its.ranks
    return known
