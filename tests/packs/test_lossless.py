"""JPEG files that are rewritten while packing: only where nothing that Pillow reads of them changes.

A stand-in for ``jpegtran`` gives what a test prepared. Pillow writes the same coefficients baseline or progressive,
with common or optimised Huffman tables, so what the true one would give is known; where that is installed, it
is tried, too.
"""

import hashlib
import os
import re
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageCms
from torchvision.datasets import ImageFolder

from accel.cli.command_line import main
from accel.errors import PackError
from accel.packs.dataset import PackDataset
from accel.packs.lossless import Saving, require_jpegtran, rewritten
from accel.packs.unpacking import unpack
from accel.packs.writing import check, pack
from tests.support import helpers
from tests.support.processes import linux

pytestmark = linux

JPEGTRAN = """#!{python}
import hashlib, pathlib, sys
assert sys.argv[1:] == ["-copy", "all", "-optimize"], sys.argv
given = {folder!r} / pathlib.Path(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())
sys.stdout.buffer.write(given.read_bytes())
"""

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def written(image: Image.Image, **options: Any) -> bytes:
    out = BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def coded(image: Image.Image, **options: Any) -> bytes:
    return written(image, quality=85, **options)


def with_segment(data: bytes, marker: int, content: bytes, at: int = 20) -> bytes:
    """A file with another segment, by default behind its JFIF header."""
    return data[:at] + bytes([255, marker]) + (len(content) + 2).to_bytes(2, "big") + content + data[at:]


def does(folder: Path, action: str, *, of_tree: bool = True) -> None:
    """Have a stand-in do something else, in shell; ``of_tree``: only with the files of ``progressive``'s tree."""
    script = folder / "jpegtran"
    if of_tree:
        script.rename(folder / "sound")
        tried = hashlib.sha256(written(Image.linear_gradient("L"), progressive=True)).hexdigest()
        sound = (
            f"cat > '{folder}'/$$; if sha256sum < '{folder}'/$$ | grep -q {tried}; then exec '{folder}/sound' \"$@\" "
        )
        action = f"{sound} < '{folder}'/$$; fi\n{action}"
    script.write_text(f"#!/bin/sh\n{action}\n")
    script.chmod(0o755)


class StandIn:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        script = folder / "jpegtran"
        script.write_text(JPEGTRAN.format(python=f"{sys.executable} -S", folder=str(folder)))
        script.chmod(0o755)
        tried = Image.linear_gradient("L")  # what ``require_jpegtran`` tries
        self.gives(written(tried, progressive=True), written(tried, optimize=True))

    def gives(self, data: bytes, new: bytes) -> None:
        (self.folder / hashlib.sha256(data).hexdigest()).write_bytes(new)


@pytest.fixture
def jpegtran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    return made


@pytest.fixture
def progressive(tmp_path: Path, jpegtran: StandIn) -> tuple[Path, dict[str, bytes]]:
    """A tree, and what those of its files are that can be rewritten."""
    root, new = tmp_path / "progressive", dict[str, bytes]()
    for number in range(6):
        name = f"{'ab'[number % 2]}/{number}.jpg"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image = helpers.picture(90 + number, 70, "L" if number == 5 else "RGB", seed=number)
        data = coded(image, progressive=number < 4, optimize=number == 4)
        new[name] = coded(image, optimize=True)
        (root / name).write_bytes(data)
        jpegtran.gives(data, new[name])
    helpers.picture(30, 20).save(root / "b" / "picture.png")
    (root / "b" / "unknown.jpg").write_bytes(coded(helpers.picture(30, 30)))
    del new["a/4.jpg"]  # it is what it would become
    return root, new


def test_a_pack_with_the_pixels_of_its_tree(progressive: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    tree, new = progressive
    report = pack(str(tree), str(tmp_path / "pack"), workers=2, lossless=True, shard_size=20_000)
    assert report.files == 8
    assert report.saving[:3] == (5, sum(len((tree / name).read_bytes()) for name in new), sum(map(len, new.values())))
    assert min(report.saving[3:5]) > 0
    assert report.saving.refused == 1
    assert check(str(tmp_path / "pack"), workers=1) == []
    samples = PackDataset(str(tmp_path / "pack"))
    assert len(samples) == 8
    for (image, label), (expected, its_label) in zip(samples, ImageFolder(tree), strict=True):
        assert (image.mode, image.tobytes(), label) == (expected.mode, expected.tobytes(), its_label)
    unpack(str(tmp_path / "pack"), str(tmp_path / "unpacked"))
    for path in tree.rglob("*.*"):
        name = str(path.relative_to(tree))
        assert (tmp_path / "unpacked" / name).read_bytes() == new.get(name, path.read_bytes())


def test_what_may_not_be_rewritten(jpegtran: StandIn) -> None:
    image, other = helpers.picture(60, 50, seed=1), helpers.picture(60, 50, seed=2)
    common, progressive = coded(image), coded(image, progressive=True)
    about = {"exif": helpers.exif(), "icc_profile": PROFILE, "comment": b"kept", "dpi": (300, 300)}
    damaged = common[:-200] + bytes(200)
    several = BytesIO()
    image.save(several, "MPO", save_all=True, append_images=[other])
    ultra_hdr = BytesIO()
    image.save(ultra_hdr, "MPO", save_all=True, append_images=[other], xmp=b'<x hdrgm:Version="1.0"/>')
    gains = ultra_hdr.getvalue()
    assert Image.open(ultra_hdr).format == "JPEG"
    cases = [
        (progressive, coded(other, optimize=True)),  # other pixels
        (progressive, coded(image.convert("L"), optimize=True)),
        (coded(image, optimize=True), common),  # larger
        (several.getvalue(), coded(image, optimize=True)),  # without the second picture
        (common, coded(image, progressive=True, optimize=True)),  # slower
        (gains, gains[: gains.rindex(b"\xff\xd8\xff")]),  # without the second picture, which Pillow does not mention
        (progressive, b""),
        (progressive, progressive[:500]),
        (damaged, coded(image, optimize=True)),
        *((coded(image, progressive=True, **{key: about[key]}), coded(image, optimize=True)) for key in about),
    ]
    best, adobe = coded(image, optimize=True), b"Adobe\0d\0\0\0\0\1"
    without_jfif, thumbnail = progressive[:2] + progressive[20:], b"JFIF\0\1\1\0\0\1\0\1\1\1abc"
    cases += [
        (progressive + b"more", best),  # without what is behind its end
        (progressive + b"more\xff\xd9", best),
        (progressive + b"\0\0", best),
        (progressive + b"\xff\xd9", best),
        (progressive[:-2] + b"\xff\x01\xff\xd9more", best),  # behind a marker without a length
        (with_segment(without_jfif, 0xE0, thumbnail, 2), best),  # without its thumbnail
        (with_segment(progressive, 0xE0, b"JFXX\0\x13\1\1abc"), best),
        (with_segment(progressive, 0xEB, b"of somebody's"), best),  # without a segment that Pillow does not know
        (with_segment(progressive, 0xEE, adobe + b"more"), with_segment(best, 0xEE, adobe)),
        (progressive, with_segment(best, 0xEE, adobe)),  # with colours that were not told before
        (progressive, with_segment(best, 0xFE, b"a comment")),
    ]
    for data, new in cases:
        jpegtran.gives(data, new)
        assert rewritten(data, "a.jpg") == (data, Saving())
    jpegtran.gives(coded(image, progressive=True, **about), coded(image, optimize=True, **about))
    assert rewritten(coded(image, progressive=True, **about), "a.jpg")[1].files == 1
    jpegtran.gives(common, coded(image, optimize=True))
    assert rewritten(common, "a.jpg")[0] == coded(image, optimize=True)


def test_what_changes_nothing(jpegtran: StandIn) -> None:
    image = helpers.picture(60, 50, seed=1)
    progressive, best = coded(image, progressive=True), coded(image, optimize=True)
    adobe = b"Adobe\0d\0\0\0\0\1"
    cases = [
        (progressive[:2] + progressive[20:], best),  # a JFIF header is added
        (with_segment(progressive, 0xEE, b"Adobe\0d\x40\0\0\0\1"), with_segment(best, 0xEE, adobe)),  # of the coding
        (with_segment(progressive, 0xEB, b"\xff\xd9\xff\xd8"), with_segment(best, 0xEB, b"\xff\xd9\xff\xd8")),  # no end
        (progressive[:-2] + b"\xff\xff\xff\xd9", best),  # fill bytes
    ]
    for data, new in cases:
        jpegtran.gives(data, new)
        assert rewritten(data, "a.jpg")[0] == new


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("exit 0", "it does not give the same picture, baseline"),
        ("cat", "it does not give the same picture, baseline"),
        ("echo no >&2; exit 1", "it ended with status 1 and said 'no'"),
        ("echo libjpeg.so.62 >&2; exit 127", "ended with status 127 and said 'libjpeg.so.62'"),
        ("kill -SEGV $$", "ended with status -11 and said ''"),
        ("exec sleep 60", "it is not done after 1 s"),
    ],
)
def test_a_jpegtran_that_is_none(
    progressive: tuple[Path, dict[str, bytes]],
    tmp_path: Path,
    jpegtran: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    why: str,
) -> None:
    if "sleep" in action:
        monkeypatch.setattr("accel.packs.lossless._LONGEST", 1)
    does(jpegtran.folder, action, of_tree=False)
    with pytest.raises(PackError, match=f"--lossless.*'{jpegtran.folder}/jpegtran'.*{re.escape(why)}"):
        pack(str(progressive[0]), str(tmp_path / "pack"), lossless=True)
    assert not (tmp_path / "pack").exists()


def test_a_jpegtran_that_cannot_be_started(jpegtran: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(jpegtran.folder))  # without another one
    script = jpegtran.folder / "jpegtran"
    script.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(PackError, match=f"'{script}' cannot be run: Exec format error"):
        require_jpegtran()
    script.chmod(0o644)
    with pytest.raises(PackError, match="--lossless needs jpegtran"):
        require_jpegtran()
    with pytest.raises(PackError, match=r"a\.jpg: 'jpegtran' cannot be run: Permission denied"):
        rewritten(b"", "a.jpg")
    script.unlink()
    with pytest.raises(PackError, match=r"a\.jpg: 'jpegtran' cannot be run: No such file"):
        rewritten(b"", "a.jpg")


@pytest.mark.parametrize(
    ("action", "why"),
    [("kill -KILL $$", "ended with status -9"), ("exit 126", "ended with status 126"), ("exit 139", "with status 139")],
)
def test_a_jpegtran_that_breaks(
    progressive: tuple[Path, dict[str, bytes]], tmp_path: Path, jpegtran: StandIn, action: str, why: str
) -> None:
    does(jpegtran.folder, action)
    with pytest.raises(PackError, match=rf"a/0\.jpg: '{jpegtran.folder}/jpegtran' .*{why}"):
        pack(str(progressive[0]), str(tmp_path / "pack"), workers=1, lossless=True)


@pytest.mark.parametrize("action", ["exit 1", "exit 2", "echo a warning >&2"])
def test_files_that_are_refused(
    progressive: tuple[Path, dict[str, bytes]],
    tmp_path: Path,
    jpegtran: StandIn,
    capsys: pytest.CaptureFixture[str],
    action: str,
) -> None:
    does(jpegtran.folder, action)
    assert main(["pack", str(progressive[0]), str(tmp_path / "pack"), "--lossless", "--workers", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("0 JPEG files rewritten, 0.0 to 0.0 MB, 0.00 to 0.00 s of decoding by Pillow; 7 refused by")
    assert "--unpack" not in out
    unpack(str(tmp_path / "pack"), str(tmp_path / "unpacked"))
    for path in progressive[0].rglob("*.*"):
        assert (tmp_path / "unpacked" / path.relative_to(progressive[0])).read_bytes() == path.read_bytes()


def test_a_file_on_which_it_hangs(jpegtran: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.packs.lossless._LONGEST", 0.1)
    does(jpegtran.folder, "exec sleep 60", of_tree=False)
    data = coded(helpers.picture(60, 50), progressive=True)
    assert rewritten(data, "a.jpg") == (data, Saving(refused=1))


def test_without_jpegtran(
    progressive: tuple[Path, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackError, match="--lossless needs jpegtran of libjpeg-turbo"):
        pack(str(progressive[0]), str(tmp_path / "pack"), lossless=True)
    assert not (tmp_path / "pack").exists()


def test_an_unfinished_pack_of_unchanged_files_is_another_one(
    progressive: tuple[Path, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, place = str(progressive[0]), str(tmp_path / "pack")
    with monkeypatch.context() as patch:
        patch.setattr("accel.packs.writing._fill", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pack(tree, place, workers=1)
    with pytest.raises(PackError, match="of another source or with other options"):
        pack(tree, place, workers=1, lossless=True)
    pack(tree, place, workers=1)


def test_what_it_says(
    progressive: tuple[Path, dict[str, bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(progressive[0]), str(tmp_path / "pack"), "--lossless", "--workers", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("5 JPEG files rewritten, 0.0 to 0.0 MB, ")
    assert "of these --unpack gives the pixels, not the bytes; 1 refused by jpegtran 8 files of 2 classes" in out


@pytest.mark.parametrize("words", [["--check", "pack"], ["--unpack", "pack", "tree"]])
def test_it_is_for_packing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "--lossless", *words]) == 2
    assert "--lossless is for packing" in " ".join(capsys.readouterr().err.split())


@pytest.mark.skipif(shutil.which("jpegtran") is None, reason="libjpeg-turbo's jpegtran is not installed")
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize(
    "options", [{"subsampling": 0}, {"subsampling": 2, "restart_marker_rows": 1}, {"exif": helpers.exif()}]
)
def test_the_true_jpegtran(mode: str, options: dict[str, Any]) -> None:
    image = helpers.picture(61, 53, mode, seed=3)
    data = coded(image, progressive=True, icc_profile=PROFILE, comment=b"kept", **options)
    without_jfif = data[:2] + data[20:] if data[2:4] == b"\xff\xe0" else data
    for each in (data, without_jfif):
        new, saving = rewritten(each, "a.jpg")
        assert saving.files == 1
        with Image.open(BytesIO(each)) as old, Image.open(BytesIO(new)) as again:
            assert "progressive" in old.info
            assert "progressive" not in again.info
            assert (again.mode, again.tobytes()) == (old.mode, old.tobytes())
            assert (again.info["icc_profile"], again.info["comment"]) == (PROFILE, b"kept")
            assert again.info.get("exif") == old.info.get("exif")
        for behind in (b"more", each):
            assert rewritten(each + behind, "a.jpg") == (each + behind, Saving())
