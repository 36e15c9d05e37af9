"""Results as tables: rows of text, made from a result file's data, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accel.cli.tables import Table


def tables(workload: dict[str, Any]) -> list[Table]:
    """The tables of one workload's part of a result file."""
    makers = {
        "entries": _entries,
        "memory": _memory,
        "feed": _feed,
        "training": _training,
        "microseconds per image": _recording,
        "median ms": _imports,
    }
    return [make(workload) for part, make in makers.items() if part in workload]


def filled(
    title: str, columns: dict[str, str], entries: Sequence[dict[str, Any]], notes: Sequence[str] = (), text: int = 1
) -> Table:
    """A table of the entries that were run, from what each column says of one; below it, why the others were not."""
    rows = [tuple(each.format(**entry) for each in columns.values()) for entry in entries if "not run" not in entry]
    missing = [f"not run: {entry['name']}: {entry['not run']}" for entry in entries if "not run" in entry]
    return Table(title, tuple(columns), rows, [*notes, *missing], text)


def _entries(workload: dict[str, Any]) -> Table:
    columns = {
        "": "{name}",
        "ms/image": "{median ms:.3f}",
        "spread": "{lowest ms:.2f}-{highest ms:.2f}",
        "img/s": "{images per second:,.0f}",
        "x torchvision": "{ratio:.2f}",
        "CPU ms/image": "{median CPU ms:.3f}",
        "pixels: max": "{pixels[0]}",
        "mean": "{pixels[1]}",
        "differ": "{pixels[2]}",
    }
    rows = [{**each, "pixels": apart(each) if "rounds" in each else None} for each in workload["entries"]]
    return filled(workload["title"], columns, rows)


def apart(entry: dict[str, Any]) -> tuple[str, str, str]:
    """How far an entry's pixels are from torchvision's: at most, on average, and what share of them."""
    if entry["exact"]:
        return ("0", "0", "0, bit-equal")
    stats = entry["difference in levels"]
    if stats is None:
        return ("own draws", "", "")
    return (f"{stats['max']:.0f}", f"{stats['mean']:.3f}", f"{100 * stats['share that differs']:.2g}%")


def _memory(workload: dict[str, Any]) -> Table:
    columns = {
        "": "{name}",
        "workers": "{workers}",
        "threads": "{threads}",
        "peak memory, MB": "{peak MB:,.0f}",
        (across := "bytes across process borders per image"): "{across}",
    }
    counts = [each.get(across) for each in workload["memory"]]
    said = ["none cross" if count is None else f"{count:,.0f}" for count in counts]
    rows = [{**each, "across": text} for each, text in zip(workload["memory"], said, strict=True)]
    return filled("Memory of main process and workers together; train pipeline, batches of 32", columns, rows)


def _feed(workload: dict[str, Any]) -> Table:
    waiting, needed = ([list(each.get(key, {}).values()) for each in workload["feed"]] for key in ("waiting", "needed"))
    rows = [{**each, "idle": idle, "of": of} for each, idle, of in zip(workload["feed"], waiting, needed, strict=True)]
    rates = next(list(each["waiting"]) for each in rows if "waiting" in each)
    columns = {"": "{name}", "img/s at most": "{images per second:,.0f}", "CPU ms/image": "{CPU ms:.3f}"}
    columns |= {f"idle at {int(rate):,}/s": f"{{idle[{number}]:.0%}}" for number, rate in enumerate(rates)}
    columns |= {f"needed for {int(rate):,}/s": f"{{of[{number}]}}" for number, rate in enumerate(rates)}
    notes = [
        "idle: the share of its time that the accelerator stood still (measured)",
        "needed: workers or threads to keep it busy, computed from img/s at most; each needs a core of its own",
    ]
    return filled(workload["title"], columns, rows, notes)


def _training(workload: dict[str, Any]) -> Table:
    columns = {
        "model": "{model}",
        "backend": "{backend}",
        "img/s": "{images per second:,.1f}",
        "x torchvision": "{ratio:.2f}",
        "waiting for data": "{waiting:.0%}",
        "CPU ms/image": "{CPU ms:.2f}",
        "losses as torchvision's": "{alike}",
    }
    rows = [{**each, "alike": "yes" if each["losses are torchvision's"] else "no"} for each in workload["training"]]
    return filled(workload["title"], columns, rows)


def _recording(workload: dict[str, Any]) -> Table:
    medians = workload["microseconds per image"]
    steps = list(next(iter(medians.values())))
    rows = [(step, *(f"{some[step]:,.1f}" for some in medians.values())) for step in steps]
    title = f"{workload['title']}; {workload['ratio']:.1f}x less CPU; microseconds per image"
    return Table(title, ("", *medians), rows)


def _imports(workload: dict[str, Any]) -> Table:
    rows = [(name, f"{ms:,.0f}") for name, ms in workload["median ms"].items()]
    return Table(workload["title"], ("", "ms"), rows)
