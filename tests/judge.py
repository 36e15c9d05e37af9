"""Whether accel makes of mutated JPEG files what Pillow makes of them.

    python tests/judge.py --count 10000 [--photos DIR] [--decode ENGINE] [--keep DIR]

Each mutant is opened, decoded as a whole and used for a region, with and without
``ImageFile.LOAD_TRUNCATED_IMAGES``. Exit status 1: accel and Pillow disagreed about some.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mutations import MAX_PIXELS, Rng, mutants
from PIL import Image, ImageFile
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel


class Verdict(NamedTuple):
    """``what`` was done with the file; whether the two agree; what came of it; who of (Pillow, accel) refused it."""

    what: str
    agreed: bool
    came: str
    refused: tuple[bool, bool]


def _tried(backend: str, function: Callable[[], Any], options: dict[str, Any]) -> Any:
    """What a function gives under a backend, or what it raises."""
    with accel.image_backend(backend, **options), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = function()
        except Exception as error:
            result = error
    bomb = any(issubclass(each.category, Image.DecompressionBombWarning) for each in warned)
    return result, bomb


def _opened(data: bytes) -> Any:
    image = Image.open(BytesIO(data))
    return image.mode, image.size, image.format


def judge(data: bytes, rng: Rng, folder: Path, **options: Any) -> Iterator[Verdict]:
    """Open, decode and use a part of a file, with and without accel; ``options`` are the cpu backend's."""
    path = folder / "mutant.jpg"
    path.write_bytes(data)
    (plain, _) = _tried("torchvision", lambda: _opened(data), {})
    width, height = plain[1] if isinstance(plain, tuple) else (64, 48)
    left, top = rng.randrange(max(width // 2, 1)), rng.choice((0, 0, rng.randrange(max(height // 2, 1))))
    box = (left, top, left + rng.randint(1, max(width // 2, 1)), top + rng.randint(1, max(height // 2, 1)))
    size = (rng.randint(1, 40), rng.randint(1, 40))
    uses: dict[str, Callable[[], Any]] = {
        "open": lambda: _opened(data),
        "whole": lambda: np.asarray(Image.open(BytesIO(data))),
        "region": lambda: F.to_tensor(default_loader(str(path)).crop(box).resize(size)).numpy(),
    }
    for what, use in uses.items():
        (expected, bomb), (actual, bomb_too) = _tried("torchvision", use, {}), _tried("cpu", use, options)
        came = _came(expected)
        if isinstance(expected, Exception):
            same = type(actual) is type(expected)
            late = not isinstance(plain, Exception) and isinstance(actual, OSError)
            agreed = same or (what != "open" and late)
        elif isinstance(actual, Exception):
            agreed = False
        elif isinstance(expected, np.ndarray):
            agreed = np.array_equal(expected, actual)
        else:
            agreed = expected == actual
        agreed = agreed and bomb == bomb_too
        if not agreed:
            came = f"Pillow: {_in_words(expected, bomb)}; accel: {_in_words(actual, bomb_too)}; box {box}, size {size}"
        yield Verdict(what, agreed, came, (isinstance(expected, Exception), isinstance(actual, Exception)))


def _came(result: Any) -> str:
    return f"raises {type(result).__name__}" if isinstance(result, Exception) else "the same"


def _in_words(result: Any, bomb: bool) -> str:
    text = f"{type(result).__name__}: {result}" if isinstance(result, Exception) else ""
    text = text or (f"pixels of sum {result.sum()}" if isinstance(result, np.ndarray) else str(result))
    return text + (" (warned of a bomb)" if bomb else "")


class Report(NamedTuple):
    """How often what came of which use, and every disagreement."""

    counts: dict[str, int]
    disagreements: list[dict[str, Any]]


def compare(
    numbers: range, seed: int, photos: Sequence[bytes] = (), keep: Path | None = None, **options: Any
) -> Report:
    """Judge the mutants; those in dispute are written to the folder ``keep``."""
    counts: Counter[str] = Counter()
    disputed: list[dict[str, Any]] = []
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    # held outside, so that what accel replaces stays in place: to take it back 18 times per mutant is slow
    with tempfile.TemporaryDirectory() as folder, accel.image_backend("cpu", **options):
        for number, kind, data in mutants(numbers, seed, photos):
            for truncated in (False, True):
                ImageFile.LOAD_TRUNCATED_IMAGES = truncated
                mode = ", truncated images wanted" if truncated else ""
                opened = (True, True)
                for what, agreed, came, refused in judge(data, Rng(f"{seed} {number} use"), Path(folder), **options):
                    counts[f"{what}{mode}: {came if agreed else 'DISAGREE'}"] += 1
                    if what != "region" and not truncated:
                        when = "opening" if what == "open" else "completing"
                        for who, open_before, now in zip(("Pillow", "accel"), opened, refused, strict=True):
                            counts[f"refused on {when} by {who}"] += open_before and now
                        opened = (not refused[0], not refused[1])
                    if not agreed:
                        disputed.append({"number": number, "kind": kind, "use": what + mode, "came": came})
                        if keep is not None:
                            (keep / f"{seed}-{number}.jpg").write_bytes(data)
            counts["mutants"] += 1
    counts["images computed by accel"] = accel.stats()["images"]
    counts.update({f"fell back: {reason}": count for reason, count in accel.stats()["fallbacks"].items()})
    return Report(dict(sorted(counts.items())), disputed)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare accel with Pillow on mutated JPEG files.")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--photos", type=Path, help="a folder whose first four JPEG files are mutated as well")
    parser.add_argument("--decode", default="auto", help="the cpu backend's option")
    parser.add_argument("--keep", type=Path, help="where to write the files in dispute")
    args = parser.parse_args()
    photos = [path.read_bytes() for path in sorted(args.photos.glob("*.jpg"))[:4]] if args.photos else []
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    numbers = range(args.first, args.first + args.count)
    report = compare(numbers, args.seed, photos, args.keep, decode=args.decode)
    print(json.dumps(report._asdict(), indent=1))
    return int(bool(report.disagreements))


if __name__ == "__main__":
    sys.exit(main())
