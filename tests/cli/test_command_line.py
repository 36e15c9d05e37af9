"""The command line before torch is imported: help and wrong arguments are answered without it."""

import subprocess
import sys
from pathlib import Path

import pytest

from accel.cli import command_line
from accel.cli.command_line import main
from accel.cli.pipelines import PIPELINES

HEAVY = {"torch", "torchvision", "numpy"}
COMMANDS = ("run", "compare", "verify", "cache", "info", "warm")
WRONG = (
    ("",),
    ("nonsense",),
    ("run",),
    ("run", "--backend", "nonsense", "script.py"),
    ("compare", "--rounds", "0"),
    ("compare", "--backend", "nonsense"),
    ("compare", "--backend", "torchvision", "--threads", "1"),
    ("compare", "--data", "nowhere"),
    ("verify",),
    ("verify", "nowhere"),
    ("verify", "{empty}"),
    ("verify", "{empty}", "--backend", "nonsense"),
    ("cache", "nonsense"),
    ("cache", "fill"),
    ("cache", "fill", "1PB", "--data", "{empty}"),
    ("cache", "verify", "/folder", "--data", "nowhere"),
    ("info", "--json"),
    ("warm", "--processes", "0"),
)


def imported(*words: str) -> tuple[int, set[str], str]:
    """The exit status of a command, the modules that it imported, and what it printed."""
    command = [sys.executable, "-X", "importtime", "-m", "accel", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    times = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    others = [line for line in done.stderr.splitlines() if line not in times]
    return done.returncode, {line.rpartition("|")[2].strip() for line in times}, "\n".join([done.stdout, *others])


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), *((command, "--help") for command in COMMANDS)], ids=str
)
def test_help_imports_no_torch(words: tuple[str, ...]) -> None:
    status, modules, printed = imported(*words)
    assert status == 0
    assert "accel" in printed
    assert modules & HEAVY == set()


@pytest.mark.parametrize("words", WRONG, ids=str)
def test_wrong_arguments_import_no_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    status, modules, printed = imported(*(word.format(empty=tmp_path) for word in words if word))
    assert status == 2
    assert "Traceback" not in printed
    assert printed.strip().splitlines()[-1].startswith(("python -m accel", *COMMANDS))
    assert modules & HEAVY == set()


def test_a_command_shows_at_once_that_it_loads_torch() -> None:
    """And imports it, so that the tests above would see it."""
    status, modules, printed = imported("cache", "list", "/nowhere/at/all")
    assert status == 2
    assert modules >= HEAVY
    assert printed.splitlines()[1] == "loading torch and torchvision"


def test_all_commands_check_the_same_in_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"verify: no images in {tmp_path}\n"
    (tmp_path / "file").write_text("")
    assert main(["compare", "--data", str(tmp_path / "file")]) == 2
    assert "cannot read the folder" in capsys.readouterr().err


def test_pipelines_are_those_of_the_command_line() -> None:
    assert tuple(PIPELINES) == command_line.PIPELINES
