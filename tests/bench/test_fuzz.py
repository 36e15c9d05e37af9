"""bench.fuzz: a thousand files of it; and that it would see a wrong pixel, a crash, a hang, memory that grows."""

import contextlib
import ctypes
import itertools
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import accel
from accel.codec import jpeg
from accel.codec.header import claim
from bench.fuzz import __main__ as command
from bench.fuzz import check, oracle, run
from bench.fuzz.coder import Coder, ordinary_scans, random_blocks, scans
from bench.fuzz.decoder import SIDES, guarded
from bench.fuzz.files import encode, intact, picture, pillow
from bench.fuzz.findings import Findings
from bench.fuzz.mutations import MUTATIONS, Rng
from bench.fuzz.oracle import Answer
from bench.fuzz.recipes import Corpus, make, recipe
from bench.fuzz.segments import joined, segments
from bench.machine import ROOT
from tests.support.processes import linux

NOTHING = Corpus(())

pytestmark = linux


@pytest.mark.sweep
def test_a_thousand_files(tmp_path: Path) -> None:
    """As anybody runs it; every kind of mutation, and every way that a file may end."""
    told = tmp_path / "told.json"
    arguments = ["--files", "1000", "--seed", "ci", "--json", str(told), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, "-m", "bench.fuzz", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(told.read_text())
    assert report["total"]["files"] == 1000
    assert report["findings"] == []
    assert set(report["kinds"]) == {*MUTATIONS, "none"}
    for outcome in (check.EQUAL, check.FELL_BACK, check.REFUSED):
        assert report["total"][outcome] > 100


# -- that it would be seen ----------------------------------------------------------------------------------


def flips_a_level(plain: Callable[..., Any]) -> Callable[..., Any]:
    def decode(*arguments: Any, **options: Any) -> Any:
        pixels = plain(*arguments, **options)
        if pixels is not None:
            pixels[-1, -1, -1] ^= 1
        return pixels

    return decode


def reads_past_the_end(plain: Callable[..., Any]) -> Callable[..., Any]:
    def decode(data: Any, *arguments: Any, **options: Any) -> Any:
        source = np.frombuffer(data, np.uint8)
        ctypes.string_at(source.ctypes.data + len(source), 1)
        return plain(data, *arguments, **options)

    return decode


def writes_before_its_memory(plain: Callable[..., Any]) -> Callable[..., Any]:
    def decode(*arguments: Any, **options: Any) -> Any:
        if options.get("out") is not None:
            ctypes.memset(options["out"].ctypes.data - 1, 0, 1)
        return plain(*arguments, **options)

    return decode


def hangs(plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: time.sleep(1000)


def kills_the_process(plain: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)


def keeps_memory(plain: Callable[..., Any]) -> Callable[..., Any]:
    kept: list[Any] = []

    def decode(*arguments: Any, **options: Any) -> Any:
        kept.append(mmap.mmap(-1, 1 << 19))  # the heap may have room that is in memory already
        kept[-1].write(b"1" * (1 << 19))
        return plain(*arguments, **options)

    return decode


DEFECTS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "flips a level": (flips_a_level, check.WRONG, "1 of "),
    "reads past the end": (reads_past_the_end, run.CRASHED, "SIGSEGV"),
    "writes before its memory": (writes_before_its_memory, run.CRASHED, "SIGSEGV"),
    "hangs": (hangs, run.HUNG, "hung"),
    "kills the process": (kills_the_process, run.CRASHED, "SIGKILL"),
    "keeps memory": (keeps_memory, run.GREW, " MB"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_seen_and_the_file_is_named(defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder has it; the run goes on behind it, and the file is kept."""
    planted, outcome, what = DEFECTS[defect]
    corpus = some_files(tmp_path / "corpus", 60 if outcome == run.GREW else 2)
    runner = run.Runner("0", corpus, run.Limits(seconds=1 if outcome == run.HUNG else 60, growth=100 << 20))
    monkeypatch.setattr(jpeg, "decode", planted(jpeg.decode))
    found = Findings(tmp_path / "kept")
    for result in runner.run([recipe(number, "0", corpus) for number in range(len(corpus))]):
        found.add(result)
    found.reduce(runner)
    assert found.total["files"] == len(corpus)
    assert found.total[outcome] == (1 if outcome == run.GREW else len(corpus))
    told = found.as_data()["findings"][0]
    assert told["outcome"] == outcome
    assert what in told["what"]
    assert "plain" not in told["where"]
    assert Path(told["kept"]).read_bytes() == corpus.read(told["number"])


def test_a_file_that_takes_too_much_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = some_files(tmp_path / "corpus", 2)
    runner = run.Runner("0", corpus, run.Limits(memory=100 << 20))

    def decode(*arguments: Any, **options: Any) -> None:
        taken = mmap.mmap(-1, 1 << 28)  # the heap may have room that is in memory already
        taken.write(b"1" * (1 << 28))
        time.sleep(1000)

    monkeypatch.setattr(jpeg, "decode", decode)
    results = list(runner.run([recipe(number, "0", corpus) for number in range(2)]))
    assert [result.outcome for result in results] == [run.GREW] * 2


def some_files(folder: Path, count: int) -> Corpus:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:02}.jpg").write_bytes(encode(picture("smooth", 20, 30, seed=number)))
    return Corpus([folder])


def test_what_ends_the_process_without_accel_is_not_accels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = some_files(tmp_path / "corpus", 1)
    runner = run.Runner("0", corpus, run.Limits())
    convert = Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda *args: os.abort() if args[1] == "L" else convert(*args))
    (result,) = runner.run([recipe(0, "0", corpus)])
    assert result.outcome == run.PLAIN


def test_a_finding_is_told_with_the_mutations_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command, whose exit status is 1; the same file is made and found again from seed and number."""
    planted = lambda data, rng, *rest: (check.WRONG, [("here", "it ends so")] if data[-1:] == b"!" else [])  # noqa: E731
    monkeypatch.setattr(run, "_prepare", lambda: None)
    monkeypatch.setattr(command, "FILES", run.FILES._replace(check=planted))
    monkeypatch.setitem(MUTATIONS, "bits anywhere", lambda data, other, rng: data + b"!")
    first = next(
        number
        for number in itertools.count()
        if [kind == "bits anywhere" for kind, _ in recipe(number, "0", NOTHING).steps] == [False, False, True]
    )
    told = tmp_path / "told.json"
    arguments = ["--first", str(first), "--files", "1", "--json", str(told), "--keep", str(tmp_path / "kept")]
    assert command.main(arguments) == 1
    (finding,) = json.loads(told.read_text())["findings"]
    assert (finding["number"], finding["mutations"]) == (first, ["bits anywhere"])
    assert Path(finding["kept"]).read_bytes()[-1:] == b"!"
    assert finding["kept"] in capsys.readouterr().out


def test_a_run_that_finds_nothing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert command.main(["--files", "1"]) == 0
    assert not list(tmp_path.iterdir())


def test_no_minutes_are_no_clean_run() -> None:
    for minutes in ("0", "-1", "nan"):
        assert command.main(["--minutes", minutes]) == 2


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--corpus", str(tmp_path / "gone")]) == 2
    assert "no such folder" in capsys.readouterr().err


# -- what is promised ---------------------------------------------------------------------------------------

PIXELS, OTHERS, BLACK = np.ones((2, 2, 3), np.uint8), np.full((2, 2, 3), 2, np.uint8), np.zeros((2, 2, 3), np.uint8)
OPENING, LATER = Answer(None, OSError("cannot <0x7f>"), first=True), Answer(None, OSError("cannot <0x7f>"))
DECODE_ERROR = Answer(None, accel.DecodeError("file: cannot <0x80>"), lazy=True)

JUDGED: dict[str, tuple[Answer, Answer, bool, bool]] = {
    "equal": (Answer(PIXELS, None), Answer(PIXELS, None, lazy=True), False, True),
    "other pixels": (Answer(PIXELS, None), Answer(OTHERS, None), False, False),
    "another dtype": (Answer(PIXELS, None), Answer(PIXELS.astype(int), None), False, False),
    "another mode": (Answer(PIXELS, None, about=("RGB",)), Answer(PIXELS, None, about=("L",)), False, False),
    "fails": (Answer(PIXELS, None), DECODE_ERROR, False, False),
    "refused on opening": (OPENING, OPENING, False, True),
    "opened what is refused": (OPENING, DECODE_ERROR, False, False),
    "opened what is refused, to replace it": (OPENING, Answer(BLACK, None, about=("RGB",)), True, True),
    "raised what is to be replaced": (OPENING, OPENING, True, False),
    "raised later what is to be replaced": (LATER, DECODE_ERROR, True, False),
    "refused later with another type": (
        LATER._replace(error=RuntimeError("cannot <0x7f>")),
        DECODE_ERROR,
        False,
        False,
    ),
    "another type": (OPENING, OPENING._replace(error=ValueError("cannot <0x7f>")), False, False),
    "another text": (OPENING, OPENING._replace(error=OSError("cannot")), False, False),
    "refused later": (LATER, DECODE_ERROR, False, True),
    "refused later by Pillow itself": (LATER, LATER, False, True),
    "refused later as accel's by Pillow": (LATER, DECODE_ERROR._replace(lazy=False), False, False),
    "refused later as Pillow's by accel": (LATER, LATER._replace(lazy=True), False, False),
    "refused too early": (LATER, OPENING, False, False),
    "another reason": (LATER, Answer(None, accel.DecodeError("file: damaged"), lazy=True), False, False),
    "pixels of what is refused": (LATER, Answer(PIXELS, None, lazy=True), False, False),
    "black of what is refused": (LATER, Answer(BLACK, None, lazy=True), False, False),
    "replaced": (LATER, Answer(BLACK, None, lazy=True), True, True),
    "replaced by what is not black": (LATER, Answer(PIXELS, None, lazy=True), True, False),
    "replaced by Pillow": (LATER, Answer(BLACK, None), True, True),
    "replaced, though intact": (Answer(PIXELS, None), Answer(BLACK, None, lazy=True), True, False),
}


@pytest.mark.parametrize("name", JUDGED)
def test_the_promise(name: str) -> None:
    plain, found, replaces, right = JUDGED[name]
    assert (oracle.difference(plain, found, replaces) == "") is right


# -- the files ----------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"\xff", b"\xd8", b"\xda", b"\xdb", b"\0", b"\2", b"\5", b"\xd1", b"\xd9", b"a"])))
def test_pieces_joined_are_the_bytes(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert joined(segments(data)) == data


@pytest.mark.parametrize("data", [b"\0", b"\xff", b"\xff\xd8", b"\xff\xda", b"\xff\xc0\0\3\x08", b"\xff\xd8\xff\xd9"])
def test_any_bytes_can_be_mutated(data: bytes) -> None:
    for kind, mutate in MUTATIONS.items():
        for seed in range(10):
            assert isinstance(mutate(data, data, Rng(seed)), bytes), kind


def test_files_follow_from_seed_and_number(tmp_path: Path) -> None:
    corpus = some_files(tmp_path / "corpus", 5)
    assert [make(recipe(number, "s", corpus), "s", corpus) for number in range(5)] == [
        file.read_bytes() for file in corpus.files
    ]
    numbers = range(5, 60)
    found = {seed: [make(recipe(number, seed, corpus), seed, corpus) for number in numbers] for seed in "st"}
    assert found["s"] == [make(recipe(number, "s", corpus), "s", corpus) for number in numbers]
    assert sum(ours == theirs for ours, theirs in zip(found["s"], found["t"], strict=True)) < 5


def test_files_that_are_made_are_intact() -> None:
    """But those whose MCUs have more blocks than libjpeg allows."""
    read = 0
    for number in range(200):
        with contextlib.suppress(OSError):
            read += pillow(intact(random.Random(number))).size > 0
    assert read > 190


def test_progressive_files_of_any_script_are_the_baseline_files_picture() -> None:
    components, whole = [(1, 4, 1), (2, 2, 1), (3, 1, 1)], 0
    for seed in range(20):
        blocks, script = random_blocks(20, seed), scans(random.Random(seed), 3)
        data = Coder().file((13, 45), components, blocks, script, restart=seed % 3)
        header = claim(data)
        assert header is not None
        if header.ordinary:
            whole += 1
            expected = pillow(Coder().file((13, 45), components, blocks))
            np.testing.assert_array_equal(pillow(data), expected)
    assert whole > 10


@pytest.mark.parametrize("side", SIDES)
def test_walls(side: str) -> None:
    array = guarded((3, 5), np.int16, side)  # type: ignore[arg-type]
    assert array.flags.c_contiguous
    assert (array == np.int16(-0x5A5B)).all()
    edge = array.ctypes.data + (array.nbytes if side == "behind" else 0)
    assert edge % mmap.PAGESIZE == 0


# -- what it found ------------------------------------------------------------------------------------------


def test_two_components_of_one_id_in_a_progressive_file() -> None:
    """libjpeg gives the second another one: the scans are the first's, the second has none. No whole picture."""
    blocks = random_blocks(20, 1)
    for ids, whole in (((1, 2, 3), True), ((1, 1, 2), False)):
        components = list(zip(ids, (2, 2, 2), (2, 2, 1), strict=True))
        header = claim(Coder().file((8, 61), components, blocks, ordinary_scans(3)))
        assert header is not None
        assert header.ordinary is whole
