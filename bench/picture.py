"""The README's pictures, docs/speed-train.svg and docs/speed-eval.svg, from the benchmark's results.

``python -m bench figures`` draws them. They are narrow, so their text can be read on a phone, and stand side by side
where there is room.
"""

from __future__ import annotations

from html import escape
from typing import Any

from bench.machine import ROOT
from bench.tables import apart

FILES = {name: ROOT / "docs" / f"speed-{name}.svg" for name in ("train", "eval")}
"""A picture for each of these workloads."""
RESULTS = "bench-public.json"
"""The file in bench/results that they show."""

_TITLES = {"train": "ImageNet training", "eval": "ImageNet evaluation"}
_WIDTH, _NAMES, _BAR, _TOP, _ROW = 340, 155, 76, 64, 25

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 13px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #59636e; font-size: 12.5px }
  .ours { font-weight: 600 }
  .bar { fill: #afb8c1 }
  .equal { fill: #4a86c5 }
  .accel { fill: #1a7f4b }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d }
    text { fill: #f0f6fc }
    .quiet { fill: #9198a1 }
    .bar { fill: #59636e }
    .equal { fill: #388bfd }
    .accel { fill: #3fb950 }
  }
"""


def draw(result: dict[str, Any], name: str) -> str:
    """Draw bars of milliseconds an image, fastest first; beside each, how many values differ.

    Args:
        result: the content of a result file of ``python -m bench`` that has the workload.
        name: the workload.

    Returns:
        The picture as SVG, on a card of its own colour, so that it can be read on any page.
    """
    entries = [each for each in result["workloads"][name]["entries"] if "rounds" in each]
    entries.sort(key=lambda each: float(each["median ms"]))
    longest = entries[-1]["median ms"]
    height = _TOP + _ROW * len(entries) + 46
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" '
        f'aria-label="{_TITLES[name]}: milliseconds an image, accel and others">',
        f"<style>{_STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(14, 26, f"{_TITLES[name]}, one core", "title"),
        _text(14, 46, "ms an image; values that differ from torchvision's", "quiet"),
    ]
    for row, each in enumerate(entries):
        y, length = _TOP + _ROW * row, _BAR * each["median ms"] / longest
        ours = each["contestant"].startswith("accel")
        kind = "accel" if ours else "equal" if apart(each)[0] == "yes" else "bar"
        bold = "ours" if ours else ""
        lines.append(_text(_NAMES - 8, y + 14, each["name"].removesuffix(", CPU"), bold, "end"))
        lines.append(f'<rect class="{kind}" x="{_NAMES}" y="{y}" width="{length:.1f}" height="18" rx="2"/>')
        lines.append(_text(_NAMES + length + 6, y + 14, f"{each['median ms']:.2f}", bold))
        lines.append(_text(_NAMES + length + 38, y + 14, differs(each), "quiet"))
    versions = result["versions"]
    lines.append(_text(14, height - 32, f"{result['date'][:10]}, {result['machine']['cpu']}, medians", "quiet"))
    named = ", ".join(f"{each} {versions[each]}" for each in ("torch", "torchvision", "Pillow"))
    lines.append(_text(14, height - 14, named, "quiet"))
    return "\n".join([*lines, "</svg>", ""])


def differs(entry: dict[str, Any]) -> str:
    """Say how many of a contestant's values differ from torchvision's."""
    equal, *_, share = apart(entry)
    if entry["contestant"] == "torchvision-v1":
        return "reference"
    return {"yes": "none", "no": share}.get(equal, "own crops")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
