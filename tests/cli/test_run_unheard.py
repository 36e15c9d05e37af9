"""``python -m accel run --profile`` where nobody reads standard error, or there is none: the script does not notice."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from accel.profiling import progress
from accel.profiling.measured import Measured
from accel.profiling.report import Report
from accel.system import stderr
from tests.cli.ended import ended
from tests.support.processes import linux

TRAINS = """
import torch, torchvision
from torch.utils.data import DataLoader
for _ in range(2):
    for _ in DataLoader(torch.zeros(40), 2):
        pass
print("trained")
"""


@linux
@pytest.mark.parametrize("kind", ["nobody reads it", "there is none"])
def test_standard_error_that_nobody_reads(kind: str, tmp_path: Path) -> None:
    """``2>&1 >FILE | head``, and ``2>&-``: a trial is announced as an epoch ends, a report shown; files are written."""
    (tmp_path / "script.py").write_text(TRAINS)
    (tmp_path / "start.py").write_text(f"""
import os, sys
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 2) if {kind == "nobody reads it"} else os.close(2)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
""")
    words = ("-m", "accel", "run", "--backend", "torchvision", "--progress", "--json", "a.json", "--trace", "b.json")
    found = ended("start.py", *words, "script.py", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert json.loads((tmp_path / "a.json").read_text())["batches"] == 40
    assert json.loads((tmp_path / "b.json").read_text())["traceEvents"]


@pytest.mark.parametrize("kind", ["none", "closed", "gone", "a file", "another"])
def test_a_line_on_standard_error(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream: io.TextIOBase | None = None
    if kind == "gone":
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
    elif kind in ("closed", "a file"):
        stream = (tmp_path / "file").open("w+", encoding="ascii")
        stream.write("before\n")
    elif kind == "another":
        stream = io.StringIO()
    if kind == "closed":
        assert stream is not None
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    stderr.say("é")
    assert not stderr.is_terminal()
    assert progress.Line()._closed
    if kind in ("a file", "another"):
        assert stream is not None
        stream.seek(0)
        assert stream.read() == ("before\n\\xe9\n" if kind == "a file" else "é\n")
    if stream is not None:
        stream.close()  # nothing has stayed in its buffer that would fail now


def test_a_report_that_nobody_reads() -> None:
    """The error is the one that ``print`` raises, and standard output is left as it is."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Report(Measured()).show(Gone())
