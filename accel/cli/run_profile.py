"""``python -m accel run --profile``: one report on all processes of a script; ``--try`` runs it a second time."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from accel.processes.launch import process
from accel.profiling import screen, trace
from accel.profiling.advice import Advice
from accel.profiling.measured import load
from accel.profiling.report import Report
from accel.system import stderr

Environment = Callable[..., dict[str, str]]
"""Makes the environment of a script with a profile, and with another backend and other options if they are given."""


def run(args: argparse.Namespace, words: list[str], variables: Environment) -> int:
    """Run the script and report on standard error; return its exit status, or end by the signal that ended it."""
    for name in (args.json, args.trace):
        if name and not _writable(Path(name)):
            _say(f"{name} cannot be written")
            return 2
    if args.attempt:
        _say("the script will run twice, the second time with a change, and write again what it writes")
    status, report = _measured(words, variables, {"trace": bool(args.trace), "progress": args.progress})
    if report is None:
        _say("nothing was measured: no process that imports torchvision went through a DataLoader, or it was killed")
        return process.end_as(status)
    _show(report)
    if args.trace:
        _write(args.trace, partial(trace.write, report.measured))
    if args.attempt and status == 0:
        _try(report, words, variables, args.progress)
    elif args.attempt:
        _say("nothing is tried after a run that failed")
    if args.json:
        _write(args.json, report.save)
    return process.end_as(status)


def _measured(
    words: list[str], variables: Environment, profile: dict[str, Any], **other: Any
) -> tuple[int, Report | None]:
    with tempfile.TemporaryDirectory(prefix="accel-profile-", ignore_cleanup_errors=True) as name:
        status = process.ended(words, variables({**profile, "folder": name}, **other))
        measured = load(Path(name))
    return status, None if measured is None else Report(measured)


def _try(report: Report, words: list[str], variables: Environment, progress: bool) -> None:
    """Run the script again with the first advice that a program can follow, and report the effect."""
    advice = next((each for each in report.advice if each.change), None)
    if advice is None or report.flow is None:
        _say("there is no advice that could be tried")
        return
    _say(f"a second run, with {advice.text}; what it prints and writes is that of another run")
    profile, other = _changes(advice, report)
    settings = {"trace": False, "progress": progress, "trial": False, **profile}
    status, second = _measured(words, variables, settings, **other)
    _say(f"the second run has ended, with {status}")
    flow = None if second is None else second.flow
    if second is None or flow is None or status != 0:
        _say("it measured nothing that could be compared")
    elif any({**second.measured.options, "backend": second.measured.backend}[key] != other[key] for key in other):
        _say("the script chooses its backend itself, so this was not tried")
    else:
        report.tried = {
            "text": advice.text,
            "change": advice.change,
            "predicted_rate": advice.predicted_rate,
            "measured_rate": flow.epoch_rate if advice.whole_epochs else flow.rate,
        }
        _say(screen.tried(report.tried))


def _changes(advice: Advice, report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings for the second run's processes: those of the profile, and those of the switch."""
    assert advice.change is not None
    assert report.flow is not None
    of_switch = ("backend", "threads")
    other = {name: value for name, value in advice.change.items() if name in of_switch}
    change = {name: value for name, value in advice.change.items() if name not in of_switch}
    if not change:
        return {}, other
    loader = report.flow.loader
    like = {"dataset": loader.dataset, "num_workers": loader.num_workers, "batch_size": loader.batch_size}
    return {"loader": {"change": change, "like": like}}, other


def _writable(file: Path) -> bool:
    """Whether a file and its folders can probably be written; checked first, as hours may pass until it is."""
    there = next(each for each in (file, *file.absolute().parents) if each.exists())
    return os.access(there, os.W_OK) and there.is_dir() == (there != file)


def _write(name: str, write: Callable[[str], object]) -> None:
    """Write a file; an error is only reported, so that the exit status stays the script's."""
    try:
        write(name)
    except OSError as error:
        _say(f"{name} could not be written: {error}")


def _show(report: Report) -> None:
    if sys.stderr is None:
        return
    try:
        report.show(sys.stderr)
    except OSError:  # the reader is gone; the flush at the end of this process must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _say(text: str) -> None:
    stderr.say(f"accel run: {text}")
