"""Plant bottlenecks and ask the profiler for them.

python -m bench.bottlenecks [--only NAME,...] [--plain] [--json] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.tables import Table, show
from bench.bottlenecks import PLANTS, child, data, processes
from bench.bottlenecks.plant import Plant
from bench.machine import RESULTS, comma_separated, known, write

_TOLERANCE = 0.15


@command("bottlenecks")
def main(argv: Sequence[str] | None = None) -> int:
    """Run plants. Exit status: 0 all bottlenecks are named, 1 a name is wrong, 2 wrong usage."""
    args = _parser().parse_args(argv)
    plants = known("plant", args.only, PLANTS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="accel-bench-") as scratch:
        folder = Path(scratch) / "photos"
        folder.mkdir()
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
        data.write(folder)
        with screen.Bar("bottlenecks", len(plants)) as bar:
            arguments = ["--plain"] if args.plain else ["--rounds", str(args.rounds)]
            for plant, found in processes.run(list(plants.values()), folder, Path(scratch), *arguments):
                rows.append(_row(plant, found, args.keep))
                if args.keep is not None:
                    (args.keep / "rows.json").write_text(json.dumps(rows))
                bar.advance()
    if args.plain:
        show(_plain_table(rows))
        return 0
    show(_table(rows))
    result = {"plants": rows, "summary": _summary(rows)}
    if args.json:
        screen.out.print_json(json.dumps(result))
    write(args.out, result)
    return int(any(row["found"] != row["expected"] for row in rows if "not run" not in row))


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m bench.bottlenecks", description=str(__doc__).partition("\n")[0])
    options.add_argument("--only", type=comma_separated, default=[], metavar="NAME,...", help="these plants [all]")
    options.add_argument("--plain", action="store_true", help="without the profiler: what each plant costs its script")
    options.add_argument("--rounds", type=int, default=3, metavar="N", help="try advice so many times [3]")
    options.add_argument("--json", action="store_true", help="print the result as JSON, too")
    options.add_argument("--keep", type=Path, metavar="DIR", help="keep what was measured, and the screens")
    options.add_argument("--out", type=Path, default=RESULTS / "bottlenecks.json", metavar="FILE")
    options.epilog = f"Plants: {', '.join(PLANTS)}."
    return options


def _row(plant: Plant, found: dict[str, Any] | processes.NotRun, keep: Path | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": plant.name, "planted": plant.says, "expected": plant.expected}
    if isinstance(found, processes.NotRun):
        return {**row, "not run": str(found)}
    if "error" in found:
        return {**row, "found": "error", "advice": [], "wrong advice": [], **found}
    if "found" not in found:
        return {**row, **found}
    screen_text, measured = found.pop("screen"), found.pop("measured")  # of each round
    if keep is not None:
        (keep / f"{plant.name}.txt").write_text(screen_text)
        (keep / f"{plant.name}.json").write_text(json.dumps(measured))
    for key in ("advice", "not advised"):
        found[key] = [_sum_up(each) for each in found[key]]
    return {**row, **found, "wrong advice": plant.wrong(found["advice"], found["why"])}


def _sum_up(advice: dict[str, Any]) -> dict[str, Any]:
    """A piece of advice with the medians over comparable rounds, or over all: predicted and measured rates, and the
    error of the prediction; for a bound, by how much it was passed."""
    rounds = [one for one in advice["rounds"] if child.alike(one)] or advice["rounds"]
    both = [(one["predicted"], one["measured"]) for one in rounds if one["predicted"] and one["measured"]]
    rates = [one["measured"] for one in rounds if one["measured"]]
    error = median(said / rate - 1 for said, rate in both) if both else None
    summed = {"measured": median(rates) if rates else None, "error": error}
    if error is not None:
        summed |= {"predicted_rate": median(said for said, _ in both)}
        summed["error"] = min(error, 0.0) if advice["at_most"] else max(error, 0.0) if advice["at_least"] else error
    return {**advice, **summed, "alike": sum(map(child.alike, advice["rounds"]))}


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    run = [row for row in rows if "not run" not in row]
    return {
        "plants": len(run),
        "named": sum(row["found"] == row["expected"] for row in run),
        "with wrong advice": [row["name"] for row in run if row["wrong advice"]],
        "predictions": _right(run, "advice"),
        "of what is not advised": _right(run, "not advised"),
    }


def _right(rows: Sequence[dict[str, Any]], key: str) -> dict[str, int]:
    """The number of predictions that were tried, that held, and that are bounds."""
    tried = [each for row in rows for each in row.get(key, ()) if each.get("error") is not None]
    return {
        "tried": len(tried),
        "within 15%": sum(abs(each["error"]) <= _TOLERANCE for each in tried),
        "bounds": sum(each["at_most"] or each["at_least"] for each in tried),
    }


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    lines: list[tuple[str, ...]] = []
    for row in rows:
        if "not run" in row:
            lines.append((row["name"], row["expected"], "not run", row["not run"], "", "", ""))
            continue
        if "error" in row:
            lines.append((row["name"], row["expected"], "WRONG: error", row["error"].splitlines()[-1], "", "", ""))
            continue
        found = row["found"] if row["found"] == row["expected"] else f"WRONG: {row['found']}"
        said = [*(row["advice"] or [None]), *row.get("not advised", ())]
        for number, each in enumerate(said):
            begin = (row["name"], row["expected"], found) if number == 0 else ("", "", "")
            lines.append((*begin, *_advice(each)))
        lines += [("", "", "", f"WRONG: {wrong}", "", "", "") for wrong in row["wrong advice"]]
    total = _summary(rows)
    notes = [f"{total['named']} of {total['plants']} named; wrong advice: {len(total['with wrong advice'])}; "]
    for key, words in (("predictions", "predictions"), ("of what is not advised", "of what is not advised")):
        its = total[key]
        notes.append(f"{words}: {its['within 15%']} of {its['tried']} within 15%, of these {its['bounds']} bounds")
    columns = ("plant", "expected", "found", "advice", "predicted", "measured", "error")
    return Table("planted bottlenecks", columns, lines, notes, text=4)


def _advice(each: dict[str, Any] | None) -> tuple[str, ...]:
    if each is None:
        return "none", "", "", ""
    error = each.get("error")
    predicted = "" if each["predicted_rate"] is None else f"{each['predicted_rate']:.0f}"
    bound = "" if not predicted else "at most " if each["at_most"] else "at least " if each["at_least"] else ""
    measured = "" if each.get("measured") is None else f"{each['measured']:.0f}"
    return each["text"], bound + predicted, measured, "" if error is None else f"{error:+.0%}"


def _plain_table(rows: Sequence[dict[str, Any]]) -> Table:
    def said(value: Any) -> str:
        return "" if value is None else value[-300:] if isinstance(value, str) else f"{value:.0f}"

    lines = []
    for row in rows:
        planted, cured = row.get("planted rate"), row.get("cured rate")
        times = f"{cured / planted:.1f}" if isinstance(planted, float) and isinstance(cured, float) else ""
        lines.append((row["name"], said(planted or row.get("not run") or row.get("found")), said(cured), times))
    return Table("what each plant costs, without the profiler", ("plant", "images/s", "cured", "times"), lines)


if __name__ == "__main__":
    sys.exit(main())
