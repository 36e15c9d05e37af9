"""Taking DALI along to a machine that reaches no package index, in pieces that travel one by one.

    python -m bench.gpu.wheels pack FOLDER [--python 3.12] [--piece MB]    # where there is an index
    python -m bench.gpu.wheels unpack FOLDER SITE                          # there, when all pieces have arrived

What is packed is for one version of Python; ``SITE`` goes on ``PYTHONPATH``. The package ``nvidia`` in it also finds
what the machine has installed below that name, and the loader finds nvJPEG beside DALI.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

PACKAGES = (
    *("nvidia-dali-cuda130==2.4.0", "nvidia-nvimgcodec-cu13==0.9.0.20", "nvidia-nvjpeg"),
    *("optree", "nvtx", "libcst", "gast", "makefun", "astunparse", "six", "wheel", "packaging", "typing-extensions"),
)
_GLIBC = (39, 34, 28, 27, 24, 17)
_SPARE = ("*/include/*", "nvidia/nvimgcodec/tools/*", "nvidia/nvimgcodec/extensions/libopencv*")
_NVIDIA = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
_ARCHIVE, _LIST = "dali.tar.xz", "dali.json"


def pack(folder: Path, python: str, piece: float) -> None:
    """Write the pieces, of at most so many MB, and a list of their names and digests."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="accel-") as scratch:
        wheels, site = Path(scratch) / "wheels", Path(scratch) / "site"
        platforms = [f"manylinux_2_{number}_x86_64" for number in _GLIBC]
        where = [f"--platform={name}" for name in (*platforms, "manylinux2014_x86_64", "manylinux1_x86_64", "any")]
        for package in PACKAGES:  # each by itself, as some have wheels for some platforms only
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            command += ["-d", str(wheels), f"--python-version={python}", *where, package]
            subprocess.run(command, check=True)
        for wheel in sorted(wheels.iterdir()):
            with ZipFile(wheel) as content:
                content.extractall(site)
        prune(site, python)
        (site / "nvidia" / "__init__.py").write_text(_NVIDIA)
        archive = Path(scratch) / _ARCHIVE
        subprocess.run(["tar", "-C", site, "-I", "xz -6 -T0", "-cf", archive, "."], check=True)
        split(archive, folder, int(piece * 1e6))


def prune(site: Path, python: str) -> None:
    """Remove what no program needs there: other Pythons' modules, headers, tools."""
    own = f".cpython-{python.replace('.', '')}-"
    others = [file for file in site.rglob("*.cpython-*.so") if own not in file.name]
    for file in (*others, *(file for pattern in _SPARE for file in site.glob(f"**/{pattern}") if file.is_file())):
        file.unlink(missing_ok=True)


def split(archive: Path, folder: Path, size: int) -> None:
    """Cut a file into pieces, and list them."""
    found = dict[str, str]()
    with archive.open("rb") as whole:
        while part := whole.read(size):
            name = f"{archive.name}.{len(found)}"
            (folder / name).write_bytes(part)
            found[name] = hashlib.sha256(part).hexdigest()
    (folder / _LIST).write_text(json.dumps(found, indent=2) + "\n")


def unpack(folder: Path, site: Path) -> None:
    """Join the pieces and unpack them.

    Raises:
        ValueError: a piece is missing, or is not what was packed.
    """
    listed = json.loads((folder / _LIST).read_text())
    for name, digest in listed.items():
        if not (folder / name).exists():
            raise ValueError(f"{name} has not arrived; there should be {len(listed)} pieces")
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ValueError(f"{name} is not the piece that was packed")
    with tempfile.NamedTemporaryFile(suffix=".tar.xz") as joined:
        for name in listed:
            joined.write((folder / name).read_bytes())
        joined.flush()
        with tarfile.open(joined.name) as content:
            content.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
            content.extractall(site)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.wheels", description=str(__doc__).partition("\n")[0])
    parser.add_argument("what", choices=("pack", "unpack"))
    parser.add_argument("folder", type=Path, help="of the pieces")
    parser.add_argument("site", type=Path, nargs="?", help="where they are unpacked")
    parser.add_argument("--python", default="3.12", metavar="X.Y", help="whose modules are packed [%(default)s]")
    parser.add_argument("--piece", type=float, default=45, metavar="MB", help="of each piece, at most [%(default)s]")
    args = parser.parse_args(argv)
    if args.what == "pack":
        pack(args.folder, args.python, args.piece)
    elif args.site is None:
        parser.error("unpack needs the folder to unpack to")
    else:
        unpack(args.folder, args.site)


if __name__ == "__main__":
    main()
