"""bench.fuzz: a thousand files of it; and that it would see a wrong pixel, a crash, a hang, memory that grows."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
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
from accel.codec import engines, jpeg
from accel.sources.header import claim
from bench.fuzz import __main__ as command
from bench.fuzz import oracle, run, trial
from bench.fuzz.codec import differences
from bench.fuzz.coder import random_blocks
from bench.fuzz.files import encode, intact, picture, pillow
from bench.fuzz.mutations import MUTATIONS, Rng
from bench.fuzz.oracle import Answer
from bench.fuzz.pieces import joined, pieces
from bench.fuzz.progressive import ProgressiveCoder, Scan, scans
from bench.fuzz.recipes import Corpus, Recipe, make, recipe
from bench.fuzz.walls import SIDES, walled

ROOT = Path(__file__).parent.parent
NOTHING = Corpus(())

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


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
    for came in (trial.EQUAL, trial.FELL_BACK, trial.REFUSED):
        assert report["total"][came] > 100


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
        kept.append(np.ones(1 << 19, np.uint8))
        return plain(*arguments, **options)

    return decode


DEFECTS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "flips a level": (flips_a_level, trial.WRONG, "1 of "),
    "reads past the end": (reads_past_the_end, run.CRASHED, "SIGSEGV"),
    "writes before its memory": (writes_before_its_memory, run.CRASHED, "SIGSEGV"),
    "hangs": (hangs, run.HUNG, "hung"),
    "kills the process": (kills_the_process, run.CRASHED, "SIGKILL"),
    "keeps memory": (keeps_memory, run.GREW, " MB"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_seen_and_the_file_is_named(
    defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a decoder that has it, in files that nobody mutated; the run goes on behind it, and the file shows it again."""
    planted, came, what = DEFECTS[defect]
    monkeypatch.setattr(run, "_prepare", lambda: accel.set_image_backend("cpu"))
    monkeypatch.setattr(run.Limits, "__new__", limits(growth=100 << 20, seconds=20 if defect != "hangs" else 3))
    monkeypatch.setattr(jpeg, "decode", planted(jpeg.decode))
    corpus, count = tmp_path / "corpus", 60 if came == run.GREW else 2
    corpus.mkdir()
    for number in range(count):
        (corpus / f"{number}.jpg").write_bytes(encode(picture("smooth", 20, 30, seed=number)))
    told, kept = tmp_path / "told.json", tmp_path / "kept"
    arguments = ["--corpus", str(corpus), "--files", str(count), "--keep", str(kept), "--json", str(told)]
    assert command.main([*arguments, "--chunk", str(count)]) == 1
    report = json.loads(told.read_text())
    finding = report["findings"][0]
    assert finding["came"] == came
    assert what in finding["what"]
    assert report["total"]["files"] == count
    assert report["total"][came] == (1 if came == run.GREW else count)
    assert Path(finding["kept"]).read_bytes() == (corpus / f"{finding['number']}.jpg").read_bytes()
    assert finding["kept"] in capsys.readouterr().out


def limits(**changed: Any) -> Callable[..., Any]:
    """The tuple's own constructor, with other values whatever is asked for."""
    return lambda cls, *arguments: tuple.__new__(cls, {**run.Limits._field_defaults, **changed}.values())
