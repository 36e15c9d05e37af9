"""A result as Markdown."""

from __future__ import annotations

from typing import Any


def text(result: dict[str, Any]) -> str:
    """The tables: ops, and whole pipelines from files."""
    processor, versions = result["machine"]["cpu"], result["versions"]
    lines = [
        f"Measured {result['date'][:10]} at commit {str(result['commit'])[:10]} on {processor}; torchvision "
        f"{versions['torchvision']}, Pillow {versions['Pillow']}; {result['images']} "
        f"photos, {result['rounds']} rounds in turns.",
        "",
        "| op | cpu: identical to torchvision? | cuda: identical? | torchvision, ms | accel, ms | times faster "
        "| OpenCV, ms | times faster than it | from a file: torchvision, ms | accel, ms | times faster |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in result["ops"].items():
        spent, faster = row["median ms"], row["times faster"]
        lines.append(
            f"| {name} | {_same(row.get('cpu'))} | {_same(row.get('cuda'))} "
            f"| {spent['torchvision']:.2f} | {spent['accel']:.2f} | {faster['torchvision']:.1f} "
            f"| {_number(spent.get('OpenCV'), 2)} | {_number(faster.get('OpenCV'), 1)} "
            f"| {spent['torchvision, file']:.2f} | {spent['accel, file']:.2f} | {faster['torchvision, file']:.1f} |"
        )
    lines += ["", *(f"{name} did not run: {why}." for name, why in result["not run"].items())]
    lines += [
        "",
        "| photos to a batch | identical to torchvision? | torchvision, ms | accel, ms | times faster |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for name, row in result["pipelines"].items():
        spent = row["median ms"]
        lines.append(
            f"| {name} | {_same(row['cpu'])} | {spent['torchvision']:.2f} | {spent['cpu']:.2f} "
            f"| {row['times faster']:.1f} |"
        )
    return "\n".join(lines)


def _same(difference: dict[str, Any] | None) -> str:
    if difference is None:
        return ""
    worst = difference["levels"]
    if difference.get("by the host"):
        return "yes, by the host" if not worst else f"within {worst}, by the host"
    return "yes" if not worst else f"within {worst} level{'s' * (worst > 1)}, {difference['share']:.4%} of values"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
