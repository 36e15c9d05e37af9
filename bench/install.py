"""What an installation takes on the disk: accel's own files, and those of all that it needs.

    python -m bench.install [--out FILE]

Megabytes of the installed files, by the lists that pip keeps, in the environment that runs this; accel's are those of
its wheel. Nothing is installed. What needs what is read from the distributions' metadata.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from accel.cli.arguments import command
from accel.cli.tables import Table, show
from bench.machine import RESULTS, ROOT, write

_ALSO_TORCHVISIONS = ("torch", "torchvision", "numpy", "pillow")


def size(name: str) -> float:
    """The megabytes of a distribution's files."""
    files = metadata.files(name) or []
    return sum(Path(str(file.locate())).stat().st_size for file in files if Path(str(file.locate())).is_file()) / 1e6


def needed(names: Sequence[str]) -> set[str]:
    """These distributions and all that they need here, with the extras that they ask for."""
    found: set[str] = set()
    ahead = [(canonicalize_name(name), frozenset([""])) for name in names]
    seen: set[tuple[str, frozenset[str]]] = set()
    while ahead:
        each = ahead.pop()
        if each in seen:
            continue
        seen.add(each)
        name, extras = each
        found.add(name)
        for requirement in map(Requirement, metadata.requires(name) or []):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                ahead.append((canonicalize_name(requirement.name), frozenset({"", *requirement.extras})))
    return found


def wheel() -> float:
    """The megabytes of the files in accel's wheel, built of this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, str(ROOT)]
        subprocess.run(build, check=True, capture_output=True)
        (file,) = Path(folder).glob("*.whl")
        return sum(info.file_size for info in ZipFile(file).infolist()) / 1e6


@command("install")
def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.install", description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS / "install.json", metavar="FILE")
    args = options.parse_args()
    there = needed(_ALSO_TORCHVISIONS)
    own = [
        canonicalize_name(Requirement(each).name)
        for each in metadata.requires("accel-vision") or []
        if "extra" not in each
    ]
    more = {name: size(name) for name in sorted(needed(own) - there)}
    found = {
        "MB": {
            "accel": wheel(),
            "what it needs besides": sum(more.values()),
            "torch, torchvision, NumPy and Pillow with what they need": sum(map(size, there)),
        },
        "besides": more,
    }
    show(Table("MB on the disk", ("", "MB"), [(name, f"{each:,.1f}") for name, each in found["MB"].items()]))
    write(args.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
