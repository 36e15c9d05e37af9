"""Results as tables: rows of text, made from a result file's data, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accel.cli.tables import Table


def tables(workload: dict[str, Any]) -> list[Table]:
    """The tables of one workload's part of a result file."""
    found = []
    makers = (
        ("entries", _entries),
        ("memory", _memory),
        ("feed", _feed),
        ("training", _training),
        ("microseconds per image", _recording),
        ("median ms", _imports),
    )
    for part, make in makers:
        if part in workload:
            found.append(make(workload))
    return found


def _entries(workload: dict[str, Any]) -> Table:
    columns = ("", "ms/image", "spread", "img/s", "x torchvision", "CPU ms/image", "pixels: max", "mean", "differ")
    ran = [each for each in workload["entries"] if "rounds" in each]
    rows = [
        (
            each["name"],
            f"{each['median ms']:.3f}",
            f"{each['lowest ms']:.2f}-{each['highest ms']:.2f}",
            f"{each['images per second']:,.0f}",
            f"{each['ratio']:.2f}",
            f"{each['median CPU ms']:.3f}",
            *_quality(each),
        )
        for each in ran
    ]
    return Table(workload["title"], columns, rows, _not_run(workload["entries"]))


def _quality(entry: dict[str, Any]) -> tuple[str, str, str]:
    if entry["exact"]:
        return ("0", "0", "0, bit-equal")
    quality = entry["difference in levels"]
    if quality is None:
        return ("own draws", "", "")
    return (f"{quality['max']:.0f}", f"{quality['mean']:.3f}", f"{100 * quality['share that differs']:.2g}%")


def _memory(workload: dict[str, Any]) -> Table:
    columns = ("", "workers", "threads", "peak memory, MB", "bytes across process borders per image")
    ran = [each for each in workload["memory"] if "not run" not in each]
    rows = []
    for each in ran:
        crossing = each["bytes across process borders per image"]
        across = "none cross" if crossing is None else f"{crossing:,.0f}"
        rows.append((each["name"], str(each["workers"]), str(each["threads"]), f"{each['peak MB']:,.0f}", across))
    title = "Memory of main process and workers together; train pipeline, batches of 32"
    return Table(title, columns, rows, _not_run(workload["memory"]))


def _feed(workload: dict[str, Any]) -> Table:
    ran = [each for each in workload["feed"] if "not run" not in each]
    rates = list(ran[0]["waiting"])
    columns = (
        "",
        "img/s at most",
        "CPU ms/image",
        *(f"idle at {int(rate):,}/s" for rate in rates),
        *(f"needed for {int(rate):,}/s" for rate in rates),
    )
    rows = [
        (
            each["name"],
            f"{each['images per second']:,.0f}",
            f"{each['CPU ms']:.3f}",
            *(f"{each['waiting'][rate]:.0%}" for rate in rates),
            *(str(each["needed"][rate]) for rate in rates),
        )
        for each in ran
    ]
    notes = [
        "idle: the share of its time that the accelerator stood still (measured)",
        "needed: workers or threads to keep it busy, computed from img/s at most; each needs a core of its own",
        *_not_run(workload["feed"]),
    ]
    return Table(workload["title"], columns, rows, notes)


def _training(workload: dict[str, Any]) -> Table:
    columns = (
        "model",
        "backend",
        "img/s",
        "x torchvision",
        "waiting for data",
        "CPU ms/image",
        "losses as torchvision's",
    )
    rows = [
        (
            each["model"],
            each["backend"],
            f"{each['images per second']:,.1f}",
            f"{each['ratio']:.2f}",
            f"{each['waiting']:.0%}",
            f"{each['CPU ms']:.2f}",
            "yes" if each["losses are torchvision's"] else "no",
        )
        for each in workload["training"]
    ]
    return Table(workload["title"], columns, rows)


def _not_run(entries: Sequence[dict[str, Any]]) -> list[str]:
    return [f"not run: {each['name']}: {each['not run']}" for each in entries if "not run" in each]


def _recording(workload: dict[str, Any]) -> Table:
    medians = workload["microseconds per image"]
    steps = list(next(iter(medians.values())))
    rows = [(step, *(f"{some[step]:,.1f}" for some in medians.values())) for step in steps]
    title = f"{workload['title']}; {workload['ratio']:.1f}x less CPU; microseconds per image"
    return Table(title, ("", *medians), rows)


def _imports(workload: dict[str, Any]) -> Table:
    rows = [(name, f"{ms:,.0f}") for name, ms in workload["median ms"].items()]
    return Table(workload["title"], ("", "ms"), rows)
