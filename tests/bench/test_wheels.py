"""``python -m bench.gpu.wheels``: DALI in pieces."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from bench.gpu import wheels

FILES = {
    "nvidia/dali/own.cpython-312-x86_64-linux-gnu.so": "own",
    "nvidia/dali/other.cpython-313-x86_64-linux-gnu.so": "other",
    "nvidia/dali/include/header.h": "header",
    "nvidia/dali/__init__.py": "from nvidia.there import NAME",
}


def test_what_is_packed_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, which are checked; and beside it the other packages of that name are found."""
    run, downloaded = subprocess.run, list[str]()

    def downloading(command: list[str], **options: object) -> object:
        if "pip" not in command:
            return run(command, **options)  # type: ignore[call-overload]
        downloaded.append(command[-1])
        folder = Path(command[command.index("-d") + 1])
        folder.mkdir(exist_ok=True)
        with ZipFile(folder / "dali.whl", "w") as wheel:
            for name, content in FILES.items():
                wheel.writestr(name, content)
        return None

    monkeypatch.setattr(wheels.subprocess, "run", downloading)
    wheels.main(["pack", str(tmp_path / "pieces"), "--python", "3.12", "--piece", "0.0002"])
    assert downloaded == list(wheels.PACKAGES)
    pieces = sorted(tmp_path.glob("pieces/dali.tar.xz.*"))
    assert len(pieces) > 1
    assert max(piece.stat().st_size for piece in pieces) <= 200
    site = tmp_path / "site"
    wheels.main(["unpack", str(tmp_path / "pieces"), str(site)])
    found = {str(file.relative_to(site)) for file in site.rglob("*") if file.is_file()}
    assert found == {"nvidia/__init__.py", "nvidia/dali/__init__.py", next(iter(FILES))}
    there = tmp_path / "there" / "nvidia"
    there.mkdir(parents=True)
    (there / "there.py").write_text("NAME = 'there'")
    code = f"import sys; sys.path[:0] = [{str(site)!r}, {str(there.parent)!r}]; import nvidia.dali as d; print(d.NAME)"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "there\n"
    pieces[0].write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"dali\.tar\.xz\.0 is not the piece"):
        wheels.unpack(tmp_path / "pieces", site)
    pieces[1].unlink()
    pieces[0].unlink()
    with pytest.raises(ValueError, match=r"has not arrived"):
        wheels.unpack(tmp_path / "pieces", site)
