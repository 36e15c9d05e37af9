"""Draw docs/speed.svg, the README's picture, from the benchmark's results: ``python docs/picture.py``."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "bench.json"
PICTURE = ROOT / "docs" / "speed.svg"

PANELS = {"train": "train", "eval": "evaluation"}
WIDTH, NAMES, PANEL, BAR, TOP, ROW = 900, 190, 345, 190, 84, 25

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  text { fill: #1f2328; font: 13px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { font-size: 16px; font-weight: 600 }
  .quiet { fill: #59636e; font-size: 12px }
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


def draw(result: dict[str, Any]) -> str:
    """Draw bars of milliseconds an image for each panel, fastest first; beside each, how many values differ.

    Args:
        result: the content of a result file of ``python -m bench`` that has all panels' workloads.

    Returns:
        The picture as SVG, on a card of its own colour, so that it can be read on any page.
    """
    entries = {
        name: {each["name"]: each for each in result["workloads"][name]["entries"] if "rounds" in each}
        for name in PANELS
    }
    names = sorted(entries["train"], key=lambda name: float(entries["train"][name]["median ms"]))
    longest = max(each["median ms"] for panel in entries.values() for each in panel.values())
    height = TOP + ROW * len(names) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        'aria-label="Milliseconds an image, accel and others, for the ImageNet pipelines">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(20, 32, "ImageNet pipelines on photos, one core: milliseconds an image", "title"),
        *(_text(NAMES + n * PANEL, TOP - 20, title, "ours") for n, title in enumerate(PANELS.values())),
    ]
    for row, name in enumerate(names):
        y = TOP + ROW * row
        ours = " ours" * entries["train"][name]["contestant"].startswith("accel")
        lines.append(_text(NAMES - 12, y + 13, name, ours.strip(), anchor="end"))
        for number, panel in enumerate(PANELS):
            if each := entries[panel].get(name):
                x, length = NAMES + number * PANEL, BAR * each["median ms"] / longest
                kind = "accel" if ours else "equal" if each["exact"] else "bar"
                lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{length:.1f}" height="17" rx="2"/>')
                lines.append(_text(x + length + 8, y + 13, f"{each['median ms']:.2f}", ours.strip()))
                lines.append(_text(x + length + 44, y + 13, differs(each), "quiet"))
    lines.append(_text(20, height - 16, _conditions(result), "quiet"))
    return "\n".join([*lines, "</svg>", ""])


def differs(entry: dict[str, Any]) -> str:
    """Say how many of a contestant's values differ from torchvision's."""
    if entry["exact"]:
        return "reference" if entry["contestant"] == "torchvision-v1" else "identical"
    quality = entry["difference in levels"]
    return "draws its own crops" if quality is None else f"{100 * quality['share that differs']:.2g}% differ"


def _conditions(result: dict[str, Any]) -> str:
    versions = result["versions"]
    named = ", ".join(f"{name} {versions[name]}" for name in ("torch", "torchvision", "Pillow"))
    return (
        f"{result['date'][:10]}, {result['machine']['cpu']}, {named}; medians of {result['rounds']} rounds in turns; "
        "% of values that differ from torchvision's"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(json.loads(RESULTS.read_text())))
