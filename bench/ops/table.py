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
    rows = []
    for name, row in result["ops"].items():
        spent, faster = row["median ms"], row["times faster"]
        rows.append(
            (
                *(name, _same(row.get("cpu")), _same(row.get("cuda"))),
                *(f"{spent['torchvision']:.2f}", f"{spent['accel']:.2f}", f"{faster['torchvision']:.1f}"),
                *(_number(spent.get("OpenCV"), 2), _number(faster.get("OpenCV"), 1)),
                *(f"{spent['torchvision, file']:.2f}", f"{spent['accel, file']:.2f}"),
                f"{faster['torchvision, file']:.1f}",
            )
        )
    notes = [f"{name} did not run: {why}." for name, why in result["not run"].items()]
    pipelines = [
        (
            *(name, _same(row["cpu"]), f"{row['median ms']['torchvision']:.2f}", f"{row['median ms']['cpu']:.2f}"),
            f"{row['times faster']:.1f}",
        )
        for name, row in result["pipelines"].items()
    ]
    return [Table("", _OPS, rows, notes, text=3), Table("", _PIPELINES, pipelines, text=2)]


def _same(difference: dict[str, Any] | None) -> str:
    if difference is None:
        return ""
    worst = difference["levels"]
    if difference.get("by the host"):
        return "yes, by the host" if not worst else f"within {worst}, by the host"
    return "yes" if not worst else f"within {worst} level{'s' * (worst > 1)}, {difference['share']:.4%} of values"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
