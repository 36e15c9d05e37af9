"""``python -m bench report``: result files to bench/REPORT.md, with tables and plots."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.cli import screen
from accel.cli.arguments import WrongUsage, command
from accel.cli.tables import Table, markdown
from bench.machine import RESULTS, ROOT
from bench.tables import apart, draw, tables

_HEAD = """# accel beside everything its users would pick instead

Made by `python -m bench report` from the files in [results](results). [README.md](README.md) tells how it is measured.
"""


@command("report")
def main(argv: Sequence[str] | None = None) -> int:
    """Write the report. Exit status: 0 written, 2 there are no results."""
    train = RESULTS / "train.json"
    found = [*sorted(RESULTS.glob("bench*.json"), key=lambda file: file.stem), train]
    what = "[bench*.json in bench/results, and train.json where it exists]"
    parser = argparse.ArgumentParser(prog="python -m bench report", description="Make bench/REPORT.md of result files.")
    parser.add_argument("results", type=Path, nargs="*", default=found, metavar="FILE", help=what)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "REPORT.md", metavar="FILE", help="[%(default)s]")
    args = parser.parse_args(argv)
    try:
        results = [json.loads(file.read_text()) for file in args.results if file.exists() or file != train]
    except OSError as error:
        raise WrongUsage(f"{error}; run python -m bench first") from error
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text(results, draw(results, args.out.parent / "plots")))
    screen.note(f"written to {args.out}")
    return 0


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
    parts = [_HEAD, *(_measured_on(result) for result in results), must_show({n: p for n, (p, _) in workloads.items()})]
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
        ran = [each for each in workloads.get(name, {}).get("entries", []) if "rounds" in each]
        ours = next((each for each in ran if each["contestant"] == "accel-cpu"), None)
        if ours is None:
            continue
        others = sorted((each for each in ran if not each["exact"]), key=lambda each: float(each["median ms"]))
        faster = [each for each in others if each["median ms"] < ours["median ms"]]
        said = f"- {name}: accel {ours['median ms']:.3f} ms an image on one core, {ours['ratio']:.2f}x torchvision"
        said += ", bit-equal"
        if faster:
            told = "; ".join(f"{each['name']} {each['median ms']:.3f} ms, pixels {pixels(each)}" for each in faster)
            said += f". **Faster: {told}.**"
        elif others:
            times = others[0]["median ms"] / ours["median ms"]
            said += (
                f", and the fastest of all that ran; next is {others[0]['name']}, {others[0]['median ms']:.3f} ms "
                f"({times:.2f}x as long), pixels {pixels(others[0])}."
            )
        else:
            said += "; nobody else ran."
        lines.append(said)
    if (part := workloads.get("recording")) is not None:
        micro = part["microseconds per image"]["accel, recording only"]["CPU in all"]
        told = f"{micro:.0f} µs of host CPU an image, {part['ratio']:.1f}x less than torchvision v1."
        lines.append(f"- submission only: {told}")
    return "\n".join([*lines, ""])


def pixels(entry: dict[str, Any]) -> str:
    """The difference of an inexact contestant's pixels from torchvision's, in words."""
    most, mean, share = apart(entry)
    return f"off by up to {most} levels, {share} of values differ" if mean else "not comparable (own draws)"


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
    rows = [(key, settings.get(key, ""), why) for key, why in status.items()]
    return "## Contestants and their settings\n\n" + markdown(Table("", ("", "settings", "here"), rows), titled=False)
