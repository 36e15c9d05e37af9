"""``python -m bench report``: result files to bench/REPORT.md, with tables and plots."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accel.cli import screen
from accel.cli.arguments import WrongUsage, command
from accel.cli.tables import Table, markdown
from bench.machine import RESULTS, ROOT
from bench.tables import apart, draw, of_accel, tables

_HEAD = """# accel beside everything its users would pick instead

Made by `python -m bench report` from the files in [results](results). [README.md](README.md) tells how it is measured.
"""


@command("report")
def main(argv: Sequence[str] | None = None) -> int:
    """Write the report. Exit status: 0 written, 2 there are no results."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description="Make bench/REPORT.md of result files.")
    parser.add_argument(
        "results",
        type=Path,
        nargs="*",
        default=files(),
        metavar="FILE",
        help="[train.json and bench*.json in bench/results]",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "REPORT.md", metavar="FILE", help="[%(default)s]")
    args = parser.parse_args(argv)
    try:
        results = [json.loads(file.read_text()) for file in args.results]
    except OSError as error:
        raise WrongUsage(f"{error}; run python -m bench first") from error
    args.out.parent.mkdir(parents=True, exist_ok=True)
    drawn = draw(results, args.out.parent / "plots") if find_spec("matplotlib") else {}
    args.out.write_text(text(results, drawn))
    screen.note(f"written to {args.out}")
    return 0


def files() -> list[Path]:
    """The result files that the report is made of."""
    return [*RESULTS.glob("train.json"), *sorted(RESULTS.glob("bench*.json"), key=lambda file: file.stem)]


def short(results: Sequence[dict[str, Any]]) -> str:
    """The answers, for the README."""
    workloads = {name: part for result in results for name, part in result["workloads"].items()}
    return "\n" + must_show(workloads).partition("\n\n")[2]


def text(results: Sequence[dict[str, Any]], drawn: dict[str, Path]) -> str:
    """The report, in Markdown.

    Args:
        results: the result files' contents; later ones win where both have a workload.
        drawn: pictures by the workload they belong to, in the folder ``plots`` beside the report.
    """
    workloads = {name: (part, result) for result in results for name, part in result["workloads"].items()}
    measured = {name: part for name, (part, _) in workloads.items()}
    parts = [_HEAD, *map(_measured_on, results), must_show(measured), _needless(measured)]
    for name, (part, _) in workloads.items():
        parts.append(f"## {part['title'][:1].upper()}{part['title'][1:]}\n\n{_conditions(name, part)}\n")
        if name in drawn:
            parts.append(f"![{name}](plots/{drawn[name].name})\n")
        parts += [markdown(table, titled=number > 0) for number, table in enumerate(tables(part))]
    parts.append(_contestants(workloads))
    return "\n".join(parts)


def must_show(workloads: dict[str, Any]) -> str:
    """Answers to the main questions, from the figures: is accel the fastest, and what does recording cost?"""
    lines = ["## In short\n"]
    for name in ("train", "eval"):
        entries = workloads.get(name, {}).get("entries", [])
        if (ours := _ours(entries)) is None:
            continue
        said = f"- {name}: accel {ours['median ms']:.3f} ms an image on one core, {ours['ratio']:.2f}x torchvision"
        said += ", bit-equal"
        others = _others(entries)
        faster = [_beside(*each) for each in others if each[0] > 1]
        if faster:
            said += f". **Faster: {'; '.join(faster)}.**"
        elif others:
            said += f", and the fastest of all that ran; next is {_beside(*others[0])}."
        else:
            said += "; nobody else ran."
        lines.append(said)
    if (part := workloads.get("recording")) is not None:
        micro = part["microseconds per image"]["accel, recording only"]["CPU in all"]
        told = f"{micro:.0f} µs of host CPU an image, {part['ratio']:.1f}x less than torchvision v1."
        lines.append(f"- submission only: {told}")
    return "\n".join([*lines, ""])


def _ours(entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    return next((each for each in entries if each["contestant"] == "accel-cpu" and "rounds" in each), None)


def _others(entries: Sequence[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """The contestants beside torchvision v1 and accel with their speed relative to accel's, fastest first."""
    others = (each for each in entries if not each["exact"] and "rounds" in each)
    speeds = [(speed, each) for each in others if (speed := of_accel(each, entries)) is not None]
    return sorted(speeds, key=lambda each: -each[0])


def _beside(speed: float, entry: dict[str, Any]) -> str:
    return f"{entry['name']}, {entry['median ms']:.3f} ms ({speed:.2f}x accel), pixels {pixels(entry)}"


def pixels(entry: dict[str, Any]) -> str:
    """The difference of a contestant's pixels from torchvision's, in words."""
    equal, most, _, share = apart(entry)
    said = {"yes": "equal in every bit", "no": f"off by up to {most} levels, {share} of values differ"}
    return said.get(equal, "not comparable (own draws)")


_LITTLE = 1.25
"""Times as fast as torchvision: what is less, is little."""


def _needless(workloads: dict[str, Any]) -> str:
    """Where accel brings little, or another library is faster, from the figures."""
    lines = [
        "## When you need none of this\n",
        f"accel was less than {_LITTLE} times as fast as torchvision, or another library faster than accel, in:\n",
    ]
    for part in workloads.values():
        entries = part.get("entries", [])
        ours = _ours(entries)
        faster = [f"{each['name']} {speed:.2f}x accel" for speed, each in _others(entries) if speed > 1]
        if ours is not None and (faster or ours["ratio"] < _LITTLE):
            lines.append(f"- {part['title']}: accel {ours['ratio']:.2f}x torchvision{'; '.join(['', *faster])}.")
        trained = [each for each in part.get("training", []) if each["backend"] != "torchvision"]
        lines += [
            f"- {part['title']}, {each['model']}: accel {each['ratio']:.2f}x torchvision, which waited for data "
            f"{part['training'][0]['waiting']:.0%} of the time."
            for each in trained
            if each["ratio"] < _LITTLE
        ]
    lines.append(
        "\nA training that its model limits gains nothing by faster input: `python -m accel run --profile` says what "
        "limits yours. The first batch of a new installation waits until kernels are compiled "
        "([the first batch](../docs/startup.md)).\n"
    )
    return "\n".join(lines)


def _measured_on(result: dict[str, Any]) -> str:
    machine = result["machine"]
    devices = ", ".join(machine["cuda devices"]) or "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    changed = " with uncommitted changes" if result["uncommitted changes"] else ""
    commit = (result["commit"] or "unknown")[:10] + changed
    return (
        f"Measured {result['date'][:10]} at commit {commit} on {machine['cpu']}, "
        f"{machine['cores']} cores, {devices}, {machine['system']}; {result['data']['images']} images "
        f"({result['data']['name']}); {result['rounds']} interleaved rounds.\n\n`{result['command']}`\n\n{versions}.\n"
    )


def _conditions(name: str, part: dict[str, Any]) -> str:
    told = [f"`python -m bench {name} --data DIR`" if name != "training" else "`python -m bench.train`"]
    if "images" in part:
        told.append(f"{part['images']} images")
    if "cores" in part:
        told.append(f"pinned to {len(part['cores'])} core{'s' * (len(part['cores']) > 1)}")
    return "; ".join(told) + "."


def _contestants(workloads: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> str:
    entries = [each for part, _ in workloads.values() for each in part.get("entries", [])]
    settings = {each["contestant"]: each["settings"] for each in entries}
    status = {key: why for _, result in workloads.values() for key, why in result.get("contestants", {}).items()}
    versions = {key: some for _, result in workloads.values() for key, some in result.get("environments", {}).items()}
    installed = {
        key: ", ".join(f"{name} {version}" for name, version in some.items()) for key, some in versions.items()
    }
    rows = [(key, settings.get(key, ""), installed.get(key, ""), why) for key, why in status.items()]
    table = Table("", ("", "settings", "versions", "here"), rows, text=4)
    return "## Contestants and their settings\n\n" + markdown(table, titled=False)
