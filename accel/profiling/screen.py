"""A report on one screen of at most 100 columns: by rich in a terminal, the same as plain text elsewhere."""

from __future__ import annotations

import io
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from accel.profiling.advice import Advice, no_cure
from accel.profiling.measured import STAGES, WORKER_STAGES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from accel.profiling.report import Report

WIDTH = 100


def text(report: Report) -> str:
    """The screen without colours."""
    return _drawn(report, color_system=None, no_color=True).file.getvalue()  # type: ignore[attr-defined, no-any-return]


def html(report: Report) -> str:
    """The screen for a notebook."""
    page: str = _drawn(report, record=True).export_html(
        inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>'
    )
    return page


def show(report: Report, file: Any = None) -> None:
    """Print it, on standard output unless said otherwise."""
    from rich.console import Console

    console = Console(file=file, highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console.print(_screen(report))


def _drawn(report: Report, **options: Any) -> Console:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, **options)
    console.print(_screen(report))
    return console


def _screen(report: Report) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(_title(report), style="bold")]
    if report.step is not None:
        parts.append(Text(_step(report.step)))
    parts.append(
        Text(f"bottleneck: {report.bottleneck}", style="bold red" if report.bottleneck != "step" else "bold green")
    )
    parts += [Text(line) for line in wrap(report.verdict.why, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")]
    parts += [Text(""), _stages(report)]
    parts += [Text(line, style="dim") for line in _notes(report)]
    parts += [Text(""), *_advice(report.advice, report.bottleneck)]
    if report.tried is not None:
        parts.append(Text(_tried(report.tried), style="bold"))
    return Group(*parts)


def _title(report: Report) -> str:
    data = report.to_dict()
    size = f" of {report.flow.images:.0f}" if report.flow else ""
    line = f'accel profile, "{data["backend"]}": {data["batches"]} batches{size} in {data["seconds"]:.1f} s'
    if data["rate"] is None:
        return line
    epochs = f" ({_rate(data['epoch_rate'])} over whole epochs)" if data["epoch_rate"] < 0.95 * data["rate"] else ""
    return f"{line}, {_rate(data['rate'])} images/s{epochs}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _step(step: dict[str, Any]) -> str:
    words = {"computing": "computing", "waiting": "waiting for input", "copying": "copying"}
    parts = [
        f"{word} not measured" if step[key] is None else f"{word} {step[key]['mean_ms']:.1f} ({step[key]['share']:.0%})"
        for key, word in words.items()
    ]
    return f"step {step['mean_ms']:.1f} ms:  " + "  ".join(parts)


def _stages(report: Report) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("stage")
    for column in ("share", "seconds", "count", "mean ms", "p50", "p95", "p99"):
        table.add_column(column, justify="right")
    workers = sum(each.role == "worker" for each in report.measured.processes)
    groups = {"worker": f"{workers} worker" + "s" * (workers != 1), "main": "main process"}
    for role, title in groups.items():
        rows = [(name, its) for name, its in report.stages.items() if its and its["where"] == role and its["count"]]
        if rows:
            table.add_row(title, style="bold")
        for name, its in rows:
            figures = [its["mean_ms"], its["p50_ms"], its["p95_ms"], its["p99_ms"]]
            share = "" if its["share"] is None else f"{its['share']:.0%}"
            table.add_row(f"  {name}", share, f"{its['seconds']:.2f}", str(its["count"]), *map(_ms, figures))
    return table


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _notes(report: Report) -> list[str]:
    lines = []
    for role, names in (("workers", WORKER_STAGES), ("main process", STAGES[len(WORKER_STAGES) :])):
        missing = [name for name in names if report.stages[name] is None]
        if missing:
            lines.append(f"not measured in the {role}: {', '.join(missing)}")
    data = report.to_dict()
    first, machine = data["first"], data["machine"]
    if first["batches"]:
        lines.append(
            f"first batch of an epoch, not among the steps above: {first['mean_ms']:.0f} ms (of {first['batches']})"
        )
    for where, words in (("loading", "your code, loading"), ("loop", "your code, the loop")):
        for each in [row for row in data["user"] if row["where"] == where][:2]:
            place = f"{each['file'].rsplit('/', 1)[-1]}:{each['line']} {each['text']}"
            lines.append(f"{words}: {each['share']:.0%} in {place}")
    idle = "not measured" if machine["idle_cores"] is None else f"{machine['idle_cores']:.1f} idle"
    line = f"cores: {machine['cores']}, {idle}"
    if machine["gpu"]:
        dry = (report.step or {}).get("dry")
        known = "not measured" if dry is None else f"{dry:.0%} of batches"
        line += f"; {machine['gpu']} had nothing left to do when a batch came: {known}"
    lines.append(line)
    return [line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in lines]


def _advice(advice: list[Advice], bottleneck: str) -> list[RenderableType]:
    from rich.text import Text

    if not advice:
        return [Text(no_cure(bottleneck))]
    lines = [Text("what would help, in images/s:", style="bold")]
    for number, each in enumerate(advice, 1):
        epochs = " over whole epochs" if each.whole_epochs else ""
        bound = "at most " if each.at_most else ""
        known = f"{bound}{_rate(each.predicted_rate)} ({each.gain:.2f}x)" if each.predicted_rate else "not known"
        lines.append(Text(f"  {number}. {each.text}"))
        lines.append(Text(f"     now {_rate(each.rate)}{epochs}, predicted {known}"))
        lines.append(Text(f"     costs {each.cost}; {each.results}"))
    return [*lines]


def _tried(tried: dict[str, Any]) -> str:
    predicted = tried.get("predicted_rate")
    words = "not known" if predicted is None else _rate(predicted)
    return f"tried: {tried['text']}: predicted {words}, measured {_rate(tried['measured_rate'])} images/s"
