"""A report on one screen of at most 100 columns: with colours in a terminal, as plain text elsewhere."""

from __future__ import annotations

import io
from textwrap import wrap
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from accel.profiling.advice import no_cure, results
from accel.profiling.measured import STAGES, WORKER_STAGES

Data = dict[str, Any]
"""A report's data, with the keys that docs/profiling.md describes."""

WIDTH = 100


def text(data: Data) -> str:
    """The screen without colours."""
    return _recorded(data).export_text()


def html(data: Data) -> str:
    """The screen as HTML, for a notebook."""
    return _recorded(data).export_html(inline_styles=True, code_format='<pre style="line-height:normal">{code}</pre>')


def _recorded(data: Data) -> Console:
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False, record=True)
    console.print(_screen(data))
    return console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the error pass: rich would end the process."""
        raise  # the one that is being handled


def show(data: Data, file: Any = None) -> None:
    """Print the screen to ``file``, by default standard output."""
    console = _Console(file=file, highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console.print(_screen(data))


def _screen(data: Data) -> RenderableType:
    parts: list[RenderableType] = [Text(_title(data), style="bold")]
    if data["step"] is not None:
        parts.append(Text(_step(data["step"])))
    style = "bold green" if data["bottleneck"] == "step" else "bold red"
    parts.append(Text(f"bottleneck: {data['bottleneck']}", style=style))
    parts += [Text(line) for line in wrap(data["why"], WIDTH - 2, initial_indent="  ", subsequent_indent="  ")]
    parts += [Text(""), _stages(data)]
    parts += [Text(line, style="dim") for line in _notes(data)]
    parts += [Text(""), *_advice(data["advice"], data["bottleneck"])]
    if data["tried"] is not None:
        parts.append(Text(tried(data["tried"]), style="bold"))
    return Group(*parts)


def _title(data: Data) -> str:
    size = f" of {data['images'] / data['batches']:.0f}" if data["batches"] else ""
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


def _stages(data: Data) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("stage")
    for column in ("share", "seconds", "count", "mean ms", "p50", "p95", "p99"):
        table.add_column(column, justify="right")
    workers = data["workers"]
    groups = {"worker": f"{workers} worker" + "s" * (workers != 1), "main": "main process"}
    for role, title in groups.items():
        rows = [(name, its) for name, its in data["stages"].items() if its and its["where"] == role and its["count"]]
        if rows:
            table.add_row(title, style="bold")
        for name, its in rows:
            figures = [its["mean_ms"], its["p50_ms"], its["p95_ms"], its["p99_ms"]]
            share = "" if its["share"] is None else f"{its['share']:.0%}"
            table.add_row(f"  {name}", share, f"{its['seconds']:.2f}", str(its["count"]), *map(_ms, figures))
    return table


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _notes(data: Data) -> list[str]:
    lines = []
    for role, names in (("workers", WORKER_STAGES), ("main process", STAGES[len(WORKER_STAGES) :])):
        missing = [name for name in names if data["stages"][name] is None]
        if missing:
            lines.append(f"not measured in the {role}: {', '.join(missing)}")
    first, machine = data["first"], data["machine"]
    if first["batches"]:
        lines.append(
            f"first batch of an epoch, not among the steps above: {first['mean_ms']:.0f} ms (of {first['batches']})"
        )
    for where, words in (("loading", "your code, loading"), ("loop", "your code, the loop")):
        for each in [row for row in data["user"] if row["where"] == where][:2]:
            place = f"{each['file'].rsplit('/', 1)[-1]}:{each['line']} {each['text']}"
            lines.append(f"{words}: {each['share']:.0%} in {place}")
    for each in data["trials"]:
        took = "" if each["took_s"] is None else f", in {each['took_s']:.1f} s"
        lines.append(f'afterwards {each["images"]} of your samples were made under "{each["backend"]}" as well{took}')
    if pools := data["counters"].get("thread pools"):
        lines.append(f"threads of other libraries in a worker: {', '.join(pools)} (accel run --limit-threads)")
    idle = "not measured" if machine["idle_cores"] is None else f"{machine['idle_cores']:.1f} idle"
    line = f"cores: {machine['cores']}, {idle}"
    if machine["gpu"]:
        dry = (data["step"] or {}).get("dry")
        known = "not measured" if dry is None else f"{dry:.0%} of batches"
        line += f"; {machine['gpu']} had nothing left to do when a batch came: {known}"
    lines.append(line)
    return [line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in lines]


def _advice(advice: list[Data], bottleneck: str) -> list[RenderableType]:
    if not advice:
        return [Text(no_cure(bottleneck))]
    lines = [Text("what would help, in images/s:", style="bold")]
    for number, each in enumerate(advice, 1):
        now, then = each["rate"], each["predicted_rate"]
        epochs = " over whole epochs" if each["whole_epochs"] else ""
        bound = "at most " if each["at_most"] else "at least " if each["at_least"] else ""
        known = f"{bound}{_rate(then)} ({then / now:.2f}x)" if then else "not known"
        lines.append(Text(f"  {number}. {each['text']}"))
        lines.append(Text(f"     now {_rate(now) if now else 'nothing'}{epochs}, predicted {known}"))
        lines.append(Text(f"     costs {each['cost']}; {results(each['bit_identical'])}"))
    return [*lines]


def tried(tried: dict[str, Any]) -> str:
    predicted = tried.get("predicted_rate")
    words = "not known" if predicted is None else _rate(predicted)
    return f"tried: {tried['text']}: predicted {words}, measured {_rate(tried['measured_rate'])} images/s"
