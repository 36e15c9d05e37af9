"""Making tables of text, for the terminal and the report, and pictures from a result file's data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.cli.costs import ratio
from accel.cli.tables import Table


def tables(workload: dict[str, Any]) -> list[Table]:
    """The tables of one workload's part of a result file."""
    makers = {
        "entries": _entries,
        "memory": _memory,
        "feed": _feed,
        "training": _training,
        "sinking": _sinking,
        "microseconds per image": _recording,
        "median ms": _imports,
    }
    return [make(workload) for part, make in makers.items() if part in workload]


def filled(
    title: str, columns: dict[str, str], entries: Sequence[dict[str, Any]], notes: Sequence[str] = (), text: int = 1
) -> Table:
    """A table of the entries that were run, with a format string for each column; below it, why others were not."""
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
        "x accel": "{of accel}",
        "CPU ms/image": "{median CPU ms:.3f}",
        "bit-equal": "{pixels[0]}",
        "pixels: max": "{pixels[1]}",
        "mean": "{pixels[2]}",
        "differ": "{pixels[3]}",
    }
    rows = []
    for each in workload["entries"]:
        found = of_accel(each, workload["entries"]) if "rounds" in each else None
        more = {
            "of accel": "" if found is None else f"{found:.2f}",
            "pixels": apart(each) if "rounds" in each else None,
        }
        rows.append({**each, **more})
    return filled(workload["title"], columns, rows)


def of_accel(entry: dict[str, Any], entries: Sequence[dict[str, Any]]) -> float | None:
    """The speed relative to accel's in the same rounds: of the same process; None if accel was not measured there.

    Where accel has several entries, it is that with as many workers and threads.
    """
    ours = entry.get("beside", {}).get("accel-cpu")
    same = (each for each in entries if all(each.get(key) == entry[key] for key in ("workers", "threads")))
    ours = ours or next(
        (each["rounds"] for each in same if each["contestant"] == "accel-cpu" and "rounds" in each), None
    )
    if ours is None or len(ours) != len(entry["rounds"]):
        return None
    return ratio([each["seconds"] for each in entry["rounds"]], [each["seconds"] for each in ours])


def apart(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    """Whether an entry's values are torchvision's in every bit; the largest and the mean difference of its pixels, and
    the share that differs."""
    stats = entry["difference in levels"]
    if entry["exact"] or (stats is not None and stats["max"] == 0):
        return ("yes", "0", "0", "0")
    if stats is None:
        return ("own draws", "", "", "")
    return ("no", f"{stats['max']:.0f}", f"{stats['mean']:.3f}", f"{100 * stats['share that differs']:.2g}%")


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


def _alike(entries: Sequence[dict[str, Any]], as_known: str) -> list[dict[str, Any]]:
    return [{**each, "alike": "yes" if each[as_known] else "no"} for each in entries]


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
    rows = _alike(workload["training"], "losses are torchvision's")
    return filled(workload["title"], columns, rows)


def _sinking(workload: dict[str, Any]) -> Table:
    columns = {
        "model": "{model}",
        "way": "{way}",
        "img/s": "{images per second:,.1f}",
        "x plain loop": "{ratio:.2f}",
        "CPU ms/image": "{CPU ms:.2f}",
        "losses as the plain loop's": "{alike}",
        "replayed": "{rounds[0][replayed]}",
    }
    rows = _alike(workload["sinking"], "losses are the plain loop's")
    reasons = {each["rounds"][0]["reason"] for each in rows} - {None}
    return filled(workload["title"], columns, rows, [f"not captured: {reason}" for reason in sorted(reasons)], text=2)


def _recording(workload: dict[str, Any]) -> Table:
    medians = workload["microseconds per image"]
    steps = list(next(iter(medians.values())))
    rows = [(step, *(f"{some[step]:,.1f}" for some in medians.values())) for step in steps]
    title = f"{workload['title']}; {workload['ratio']:.1f}x less CPU; microseconds per image"
    notes = []
    for size, found in workload.get("by batch", {}).items():
        *both, reading, times = found.values()
        said = ", ".join(f"{name} {micro:,.1f}" for name, micro in zip(medians, both, strict=True))
        notes += [
            f"by batches of {size}, ImageFolder in a DataLoader: {said} (of which reading {reading:,.1f}); "
            f"{times:.1f}x less CPU"
        ]
    return Table(title, ("", *medians), rows, notes)


def _imports(workload: dict[str, Any]) -> Table:
    rows = [(name, f"{ms:,.0f}") for name, ms in workload["median ms"].items()]
    return Table(workload["title"], ("", "ms"), rows)


_OURS, _EXACT, _OTHERS = "#2a7f62", "#3b6ea5", "#b9b9b9"
_DOTS_PER_INCH = 80


def draw(results: Sequence[dict[str, Any]], folder: Path) -> dict[str, Path]:
    """Draw the results; return the PNG files by workload."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, part in {name: part for result in results for name, part in result["workloads"].items()}.items():
        if not any("rounds" in each for each in part.get("entries", part.get("feed", []))):
            continue
        figure, axes = pyplot.subplots(figsize=(8.5, 4), layout="constrained")
        {"scaling": _scaling, "feed": _needed}.get(name, _bars)(axes, part)
        axes.set_title(part["title"], fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        drawn[name] = folder / f"{name}.png"
        figure.savefig(drawn[name], dpi=_DOTS_PER_INCH, metadata={"Software": None})
        pyplot.close(figure)
    return drawn


def _bars(axes: Any, part: dict[str, Any]) -> None:
    """Draw milliseconds an image, with a line from the lowest to the highest round, and how many values differ."""
    ran = [each for each in part["entries"] if "rounds" in each][::-1]
    colours = [
        _OURS if each["contestant"].startswith("accel") else _EXACT if each["exact"] else _OTHERS for each in ran
    ]
    medians = [each["median ms"] for each in ran]
    spread = [
        [each["median ms"] - each["lowest ms"] for each in ran],
        [each["highest ms"] - each["median ms"] for each in ran],
    ]
    axes.barh([each["name"] for each in ran], medians, xerr=spread, color=colours, error_kw={"lw": 0.8})
    for row, each in enumerate(ran):
        axes.text(each["highest ms"], row, f"  {each['median ms']:.2f}; {_apart(each)}", va="center", fontsize=7)
    axes.set_xlim(0, 1.35 * max(each["highest ms"] for each in ran))
    axes.set_xlabel("ms/image (less is better); pixels that differ from torchvision's")
    axes.tick_params(axis="y", labelsize=8)


def _apart(entry: dict[str, Any]) -> str:
    equal, most, _, share = apart(entry)
    return {"yes": "bit-equal", "no": f"{share} differ, by up to {most}"}.get(equal, equal)


def _scaling(axes: Any, part: dict[str, Any]) -> None:
    """Draw images a second over workers or threads."""
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for each in part["entries"]:
        if "rounds" in each:
            scale = each["name"].rsplit(" ", 1)[1].rstrip("s") + "s"
            level = int(each["name"].rsplit(" ", 2)[1])
            lines.setdefault((each["contestant"], scale), []).append((level, each["images per second"]))
    for (contestant, scale), points in lines.items():
        levels, speeds = zip(*points, strict=True)
        style = {"color": _OURS, "lw": 2.5} if contestant.startswith("accel") else {"lw": 1.2}
        axes.plot(levels, speeds, "--o" if scale == "threads" else "-o", ms=3, label=f"{contestant}, {scale}", **style)
    axes.set_xlabel("DataLoader workers (solid), threads (dashed)")
    axes.set_ylabel("images/s")
    axes.set_xticks(sorted({level for points in lines.values() for level, _ in points}))
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)


def _needed(axes: Any, part: dict[str, Any]) -> None:
    """Draw the workers needed to keep the accelerator busy, from one worker's rate."""
    ran = [each for each in part["feed"] if "rounds" in each and 1 in (each.get("workers"), each.get("threads"))]
    rates = list(ran[0]["needed"])
    width = 0.8 / len(ran)
    for number, each in enumerate(ran):
        places = [place + number * width for place in range(len(rates))]
        colour = {"color": _OURS} if each["contestant"].startswith("accel") else {}
        bars = axes.bar(places, [each["needed"][rate] for rate in rates], width, label=each["contestant"], **colour)
        axes.bar_label(bars, fontsize=6)
    axes.set_xticks(
        [place + 0.4 - width / 2 for place in range(len(rates))], [f"{int(rate):,} img/s" for rate in rates]
    )
    axes.set_ylabel("workers or threads needed")
    axes.legend(fontsize=7)
