"""``python -m bench figures``: the figures in README.md, docs/ and bench/README.md, from result files.

A document has what is made between two comments, ``<!-- = WHAT -->`` and ``<!-- / -->``. ``WHAT`` is a name in
``TABLES``, or a field of a file in bench/results and its format, as in ``index.json > train > medians > first : .2f``.
A part of the path is a key, the number of a list's entry, or ``key=value``, its first entry with that. ``~2`` before
the format rounds to two digits. ``FIELD / FIELD`` is the quotient of two fields; those of two GPU files must be of one
kind of card. ``gpu/emit.json : commit`` says at which commit a file was made, and whether with uncommitted changes;
each paragraph with figures of such a file has it (``undisclosed``).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from accel.cli import screen
from accel.cli.arguments import Red, command
from accel.cli.tables import Table, markdown
from bench import dali, libraries, picture, processors, report, serving
from bench.gpu import resources
from bench.machine import RESULTS, ROOT
from bench.ops import __main__ as ops

PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "bench" / "README.md",
    ROOT / "bench" / "gpu" / "README.md",
)
_MADE = re.compile(r"(<!-- = (.+?) -->)(.*?)(<!-- / -->)", re.DOTALL)


@command("figures")
def main(argv: Sequence[str] | None = None) -> int:
    """Write the figures. Exit status: 0 written, 1 a document names a field that no result file has."""
    argparse.ArgumentParser(prog="python -m bench figures", description=__doc__.partition("\n")[0]).parse_args(argv)
    try:
        texts = {page: filled(page.read_text()) for page in PAGES}
    except ValueError as error:
        raise Red(str(error)) from error
    texts |= {file: picture.draw(content(picture.RESULTS), name) for name, file in picture.FILES.items()}
    for path, text in texts.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            screen.note(f"written to {path}")
    return 0


def filled(text: str) -> str:
    """The text with everything between the comments made anew.

    Raises:
        ValueError: a comment names nothing, or has no end.
    """
    made = _MADE.sub(lambda match: f"{match[1]}{_made(match[2])}{match[4]}", text)
    pairs = len(_MADE.findall(made))
    if any(made.count(mark) != pairs for mark in ("<!-- = ", "<!-- / -->")):
        raise ValueError("<!-- = ... --> without <!-- / -->, or the reverse")
    return made


def _made(what: str) -> str:
    try:
        if make := TABLES.get(what):
            return f"\n{make().strip()}\n"
        paths, _, form = what.rpartition(" : ")
        if form == "commit":
            return _commit(content(paths))
        files = {path.partition(" > ")[0] for path in paths.split(" / ")}
        cards = {content(file)["device"] for file in files if file.startswith("gpu/")}
        if len(cards) > 1:
            raise ValueError(f"{what}: of several cards: {', '.join(sorted(cards))}")
        first, *second = [field(path) for path in paths.split(" / ")]
        return shown(first / second[0] if second else first, form)
    except (KeyError, IndexError, StopIteration, TypeError, OSError) as error:
        raise ValueError(f"{what}: not in bench/results ({error!r})") from error


def _commit(result: Any) -> str:
    how = "with uncommitted changes at" if result["uncommitted changes"] else "at"
    return f"{how} {result['commit'][:8]}"


def undisclosed(text: str) -> list[str]:
    """The GPU files with uncommitted changes of which a paragraph, or the table that it introduces, has figures or
    cites results, and does not say so."""
    found: list[str] = []
    for paragraph in re.sub(r"\n\n(?=\||<!-- = [^:>]+ -->\n)", "\n", text).split("\n\n"):
        for name in sorted(set(re.findall(r"gpu/\w+\.json", paragraph))):
            said = f"<!-- = {name} : commit -->" in paragraph
            if content(name)["uncommitted changes"] and not said:
                found.append(f"{name}: {paragraph[:80]}")
    return found


@cache
def content(name: str) -> Any:
    """A file in bench/results."""
    return json.loads((RESULTS / name).read_text())


def field(path: str) -> Any:
    """The value at a path, as above."""
    name, *parts = path.split(" > ")
    found = content(name)
    for part in parts:
        if isinstance(found, list):
            key, _, value = part.partition("=")
            found = next(each for each in found if each[key] == value) if value else found[int(part)]
        else:
            found = found[part]
    return found


def shown(value: Any, form: str) -> str:
    """A value in a format of Python's; ``~2`` in front rounds it to two digits before."""
    if digits := re.match(r"~(\d) ", form):
        value, form = float(f"{value:.{int(digits[1]) - 1}e}"), form[3:]
    return format(value, form)


def _grid(first: str, columns: Mapping[str, str], rows: Mapping[str, tuple[str, str]]) -> str:
    """A table of fields: a column's path, then a row's, and the row's format; empty where there is none."""

    def cell(path: str, form: str) -> str:
        try:
            return shown(field(path), form)
        except (KeyError, IndexError):
            return ""

    lines = [
        (title, *(cell(f"{column} > {row}", form) for column in columns.values()))
        for title, (row, form) in rows.items()
    ]
    return markdown(Table("", (first, *columns), lines))


_CACHE = {
    title: f"cache.json > {name} > medians"
    for title, name in {
        "train": "train",
        "eval": "eval",
        "`Resize`, `RandomCrop`": "resize, crop",
        "train, 12 MP": "train, 12 megapixels",
        "`Resize`, `RandomCrop`, 12 MP": "resize, crop, 12 megapixels",
    }.items()
}
_DECODED = {
    title: f"gpu/decode.json > steps > {name}, 512 at once"
    for title, name in {"whole": "photos", "crop": "crops", "by index": "crops by indexes"}.items()
}
_KERNELS = (
    *("jpeg_count", "jpeg_offsets", "jpeg_unstuff", "jpeg_tables", "jpeg_synchronise", "jpeg_join"),
    *("jpeg_coefficients", "jpeg_dc", "jpeg_segments", "jpeg_transform", "jpeg_pixels"),
)


def _short() -> str:
    return report.short([content(file.name) for file in report.files()])


_LINK, _WANTED = 12.5e9, 24_000  # bytes a second of 100 GbE; training images a second of the worked example


def _scale() -> str:
    """docs/scale.md's arithmetic: what goes over a link, and the cores of both sides, by what was measured of an image.

    A sender of pixels is charged what a batch costs to record and compute, and the trainer of float32 nothing."""
    us, sizes = content("wire.json")["us"], content("wire.json")["bytes"]
    plain = 1000 * field("cache.json > train > medians > torchvision")
    rows = []
    for what, size, sender, trainer in (
        ("accel's recipes", sizes["message"], us["record"] + us["dumps"], us["collate"]),
        ("uint8 pixels, by accel", sizes["result, uint8"], us["record"] + us["compute"], 0.0),
        ("float32, by torchvision", sizes["result, float32"], plain, 0.0),
    ):
        cores = [f"{each * _WANTED / 1e6:.0f}" if each else "" for each in (sender, trainer)]
        gigabits = f"{8 * size * _WANTED / 1e9:.0f}"
        rows.append((what, f"{size / 1000:.0f} KB", f"{_LINK / size:,.0f}", gigabits, *cores))
    columns = ("travels", "an image", "images/s, 100 GbE", "Gbit/s", "cores that send", "cores that collate")
    return markdown(Table("", columns, rows))


TABLES: dict[str, Callable[[], str]] = {
    "scale": _scale,
    "serving": lambda: markdown(serving.table(content("serving.json")["requests"])),
    "in short": _short,
    "ops": lambda: ops.text(content("ops.json")),
    "libraries": lambda: markdown(libraries.table(content("libraries.json")["rows"])),
    "processors": lambda: markdown(processors.table(content("processors.json"))),
    "DALI's differences": lambda: markdown(
        dali.apart([row for row in content("dali-cpu.json")["differences"] if not row["left"]])
    ),
    "DALI's speed": partial(
        _grid,
        "",
        {f"{name}, ms": f"dali-cpu.json > speed > pipeline={name} > contestants" for name in ("train", "eval")},
        {
            "a DALI pipeline written by hand": ("DALI by hand > CPU ms", ".2f"),
            "the same, with the memory pool that accel asks for": ("DALI by hand, pooled memory > CPU ms", ".2f"),
            'accel, `"dali"`, `exact=False`': ("accel, dali, exact=False > CPU ms", ".2f"),
            "the same, two batches ahead": ("accel, dali, exact=False, two batches ahead > CPU ms", ".2f"),
            'accel, `"dali"`, exact': ("accel, dali, exact=True > CPU ms", ".2f"),
            'accel, `"cpu"`': ("accel, cpu > CPU ms", ".2f"),
        },
    ),
    "cache": partial(
        _grid,
        "",
        _CACHE,
        {
            "torchvision, ms per image": ("torchvision", "~3 g"),
            "accel, `cache=None`": ("without", "~3 g"),
            'accel, `cache="auto"` (stream indexes)': ("by indexes", "~3 g"),
            "accel, full cache": ("full", "~2 g"),
            "full cache, times as fast as `cache=None`": ("without by full", "~2 g"),
            "cache of half the size, the same": ("half: without by cached", ".1f"),
            "first epoch, filling: time relative to `cache=None`": ("first by without", ".2f"),
            "first two epochs together, the same": ("two by without", ".2f"),
            "bytes of the cache, relative to the files": ("bytes by files'", "~2 g"),
        },
    ),
    "epochs that fill a cache": partial(
        _grid,
        "epoch",
        {str(number + 1): f"cache.json > epochs of training > {number}" for number in range(10)},
        {"files found": ("found", ".0%"), "time relative to `cache=None`": ("by none", ".2f")},
    ),
    "filling by quarters": partial(
        _grid,
        "epochs together",
        {
            "train": "filling.json > train > whole > quarters > by the account",
            "train, half the budget": "filling.json > train > half > quarters > by the account",
            "train, files of 160 x 120": "filling.json > train, 160 x 120 > whole > quarters > by the account",
            "eval, results by quarters too": "filling.json > eval > whole > quarters, results too > by the account",
        },
        {count: (count, ".2f") for count in ("1", "2", "5", "10", "30")},
    ),
    "decoding on an H200": partial(
        _grid,
        "kernel",
        _DECODED,
        {f"`{name}`": (f"each, ms > {name}", ".2f") for name in _KERNELS} | {"all": ("kernels, ms", ".2f")},
    ),
    "kernels": lambda: markdown(resources.table(content("kernels.json")["kernels"])),
    "the first batch": partial(
        _grid,
        "",
        {
            "torchvision": "startup.json > medians > torchvision",
            "accel, everything compiled": "startup.json > medians > warm",
            "accel, nothing compiled": "startup.json > medians > cold",
        },
        {"seconds": ("seconds", ".1f"), "CPU seconds": ("cpu_seconds", ".1f")},
    ),
}
"""Tables and lists by name."""
