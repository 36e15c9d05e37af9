"""A result as tables: ops, and whole pipelines from files."""

from __future__ import annotations

from typing import Any

from accel.cli.tables import Table, markdown

_OPS = (
    *("op", "cpu: identical to torchvision?", "cuda: identical?", "torchvision, ms", "accel, ms", "times faster"),
    *("OpenCV, ms", "times faster than it", "from a file: torchvision, ms", "accel, ms", "times faster"),
)
_PIPELINES = ("photos to a batch", "identical to torchvision?", "torchvision, ms", "accel, ms", "times faster")


def text(result: dict[str, Any]) -> str:
    """In Markdown, with where it was measured."""
    processor, versions = result["machine"]["cpu"], result["versions"]
    measured = (
        f"Measured {result['date'][:10]} at commit {str(result['commit'])[:10]} on {processor}; torchvision "
        f"{versions['torchvision']}, Pillow {versions['Pillow']}; {result['images']} "
        f"photos, {result['rounds']} rounds in turns.\n"
    )
    return "\n".join([measured, *map(markdown, tables(result))]).rstrip("\n")


def tables(result: dict[str, Any]) -> list[Table]:
    rows, pipelines = [], []
    for name, row in result["ops"].items():
        here, from_file = ((_ms(row, f"torchvision{way}"), _ms(row, f"accel{way}")) for way in ("", ", file"))
        times = {key: f"{value:.1f}" for key, value in row["times faster"].items()}
        same = _same(row.get("cpu")), _same(row.get("cuda"))
        beside = _ms(row, "OpenCV"), times.get("OpenCV", "")
        rows.append((name, *same, *here, times["torchvision"], *beside, *from_file, times["torchvision, file"]))
    for name, row in result["pipelines"].items():
        spent = _ms(row, "torchvision"), _ms(row, "cpu")
        pipelines.append((name, _same(row["cpu"]), *spent, f"{row['times faster']:.1f}"))
    notes = [f"{name} did not run: {why}." for name, why in result["not run"].items()]
    return [Table("", _OPS, rows, notes, text=3), Table("", _PIPELINES, pipelines, text=2)]


def _ms(row: dict[str, Any], name: str) -> str:
    spent = row["median ms"].get(name)
    return "" if spent is None else f"{spent:.2f}"


def _same(difference: dict[str, Any] | None) -> str:
    if difference is None:
        return ""
    worst = difference["levels"]
    if difference.get("by the host"):
        return "yes, by the host" if not worst else f"within {worst}, by the host"
    return "yes" if not worst else f"within {worst} level{'s' * (worst > 1)}, {difference['share']:.4%} of values"
