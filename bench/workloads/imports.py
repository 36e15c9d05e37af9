"""What importing costs, each round in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Any

from accel.cli import screen
from bench.workload import Setting, Workload

_STATEMENTS = {  # what is timed, and what has been imported before
    "import torchvision": "pass",
    "import accel, after it": "import torchvision",
}
_PROGRAM = """
import time
{before}
begin = time.perf_counter()
{timed}
print(time.perf_counter() - begin)
"""


def _measure(setting: Setting) -> dict[str, Any]:
    rounds: dict[str, list[float]] = {statement: [] for statement in _STATEMENTS}
    with screen.Bar("imports", setting.rounds * len(_STATEMENTS)) as bar:
        for _ in range(setting.rounds):
            for statement, before in _STATEMENTS.items():
                rounds[statement].append(_time(statement, before))
                bar.advance()
    return {"rounds": rounds, "median ms": {statement: 1000 * median(some) for statement, some in rounds.items()}}


def _time(statement: str, before: str) -> float:
    program = _PROGRAM.format(before=before, timed=statement.partition(",")[0])
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(run.stdout)


IMPORTS = Workload("imports", "imports, in fresh interpreters", _measure)
