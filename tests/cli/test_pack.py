"""``python -m accel pack``: packs, checks, unpacks; and says why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel.cli.command_line import main
from accel.codec.files import pack_index
from tests.support.helpers import write_image_folder
from tests.support.processes import linux

pytestmark = linux


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_image_folder(tmp_path / "tree")


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Standard output and standard error, without line breaks."""
    shown = capsys.readouterr()
    return " ".join(shown.out.split()), " ".join(shown.err.split())


def test_there_and_back(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = str(tmp_path / "pack")
    (tree / "cat" / "notes.txt").write_text("no picture")
    assert main(["pack", str(tree), pack, "--shard-size", "20kB", "--workers", "1"]) == 0
    out, err = said(capsys)
    assert out.startswith("12 files of 2 classes in 4 shards, 0.1 MB: ")
    assert out.endswith(f" files/s, verified; 1 left out, 0 skipped: {pack}")
    assert "left out, as ImageFolder does: cat/notes.txt" in err
    assert main(["pack", "--check", pack, "--workers", "1"]) == 0
    assert f"all is as the index says: {pack}" in said(capsys)[0]
    assert main(["pack", "--unpack", pack, str(tmp_path / "unpacked")]) == 0
    assert said(capsys)[0].startswith("12 files, ")
    for path in tree.rglob("*.jpg"):
        assert (tmp_path / "unpacked" / path.relative_to(tree)).read_bytes() == path.read_bytes()


def test_files_that_are_no_pictures(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(25):
        Path(os.fsdecode(os.fsencode(tree) + b"/dog/\xff%02d.jpg" % number)).write_bytes(b"no picture")
    assert main(["pack", str(tree), str(tmp_path / "pack"), "--workers", "1"]) == 2
    assert r"dog/\udcff00.jpg': it is no picture that Pillow can open" in said(capsys)[1]
    assert main(["pack", str(tree), str(tmp_path / "pack"), "--workers", "1", "--on-error", "skip"]) == 0
    out, err = said(capsys)
    assert "12 files" in out
    assert "0 left out, 25 skipped" in out
    assert r"skipped: 'dog/\udcff00.jpg': it is no picture" in err
    assert "skipped: 5 more" in err


def test_others_indexes(tree: Path, tmp_path: Path) -> None:
    assert main(["pack", str(tree), str(tmp_path / "pack"), "--workers", "1", "--idx", "--wids"]) == 0
    assert {"shard-000000.idx", "wids.json"} <= {path.name for path in (tmp_path / "pack").iterdir()}


def test_damage(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack = tmp_path / "pack"
    main(["pack", str(tree), str(pack), "--shard-size", "20kB", "--workers", "1"])
    os.truncate(pack / "shard-000002.tar", 8192)
    said(capsys)
    assert main(["pack", "--check", str(pack), "--workers", "1"]) == 1
    err = said(capsys)[1]
    assert "shard-000002.tar" in err
    assert "1 of the pack's files are not what its index says" in err
    assert main(["pack", "--unpack", str(pack), str(tmp_path / "unpacked")]) == 1
    assert "shard-000002.tar" in said(capsys)[1]
    os.remove(pack_index.file_of(str(pack)))
    assert main(["pack", "--check", str(pack)]) == 1
    assert "the pack's index cannot be used" in said(capsys)[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["SRC"], "it needs SRC and DST"),
        (["--check", "SRC", "DST"], "--check needs a pack, and nothing else"),
        (["--unpack", "SRC"], "it needs SRC and DST"),
        (["nowhere", "DST"], "neither a folder, nor a .csv, nor an array dataset"),
        (["SRC", "SRC"], "the folder is inside of what is to be packed"),
    ],
)
def test_wrong_usage(
    tree: Path, tmp_path: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"SRC": str(tree), "DST": str(tmp_path / "pack")}
    assert main(["pack", *(places.get(word, word) for word in words)]) == 2
    assert why in said(capsys)[1]
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize("size", ["1", "1XB", "/folder:1GB", "0GB", ""])
def test_wrong_sizes(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pack", "a", "b", "--shard-size", size])
    assert "argument --shard-size: invalid size value" in said(capsys)[1]


def test_a_process_of_its_own(tree: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "accel", "pack", str(tree), str(tmp_path / "pack")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "12 files of 2 classes in 1 shards" in done.stdout
