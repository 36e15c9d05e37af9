"""The report's pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.tables import apart

_OURS, _EXACT, _OTHERS = "#2a7f62", "#3b6ea5", "#b9b9b9"
_DOTS_PER_INCH = 80


def draw(results: Sequence[dict[str, Any]], folder: Path) -> dict[str, Path]:
    """Draw what the results have; the PNG files by workload."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, part in {name: part for result in results for name, part in result["workloads"].items()}.items():
        if not any("rounds" in each for each in part.get("entries", part.get("feed", []))):
            continue
        figure, axes = pyplot.subplots(figsize=(8.5, 4), layout="constrained")
        {"scaling": _scaling, "feed": _feed}.get(name, _bars)(axes, part)
        axes.set_title(part["title"], fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        drawn[name] = folder / f"{name}.png"
        figure.savefig(drawn[name], dpi=_DOTS_PER_INCH, metadata={"Software": None})
        pyplot.close(figure)
    return drawn


def _bars(axes: Any, part: dict[str, Any]) -> None:
    """Milliseconds an image, lowest to highest round as a line; beside it how many values differ."""
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
    most, mean, share = apart(entry)
    return "bit-equal" if entry["exact"] else f"{share} differ, by up to {most}" if mean else "own draws"


def _scaling(axes: Any, part: dict[str, Any]) -> None:
    """Images a second against workers or threads."""
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


def _feed(axes: Any, part: dict[str, Any]) -> None:
    """Workers needed to keep the accelerator busy, from one worker's rate."""
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
