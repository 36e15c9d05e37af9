"""A report: measurements, verdict and advice, as attributes, a screen of text, a notebook's cell, or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accel.profiling import schema, screen
from accel.profiling.advice import Advice, advise
from accel.profiling.flow import Flow
from accel.profiling.measured import Measured
from accel.profiling.verdict import Verdict, judge


class Report:
    """The bottleneck of a training, and how much changes would help; empty until something was measured.

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
        """The time of the workers and of the main process by stage; None for stages that were not measured."""
        return schema.stages(self.measured)

    @property
    def step(self) -> dict[str, Any] | None:
        """The division of a step into computing, waiting for input and copying; None if there are too few batches."""
        return schema.step(self.measured, self.flow)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as docs/profiling.md describes it."""
        return schema.content(self.measured, self.verdict, self.advice, self.tried)

    def to_json(self) -> str:
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
