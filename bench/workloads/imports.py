"""The time that importing takes, each round in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from statistics import median
from typing import Any

from accel.cli import screen
from accel.cli.costs import take_turns
from bench.workload import Setting, Workload

_STATEMENTS = {  # what is timed, and what has been imported before
    "import torchvision": "pass",
    "import accel, after it": "import torchvision",
}


def _measure(setting: Setting) -> dict[str, Any]:
    turns = {statement: partial(_time, statement, before) for statement, before in _STATEMENTS.items()}
    with screen.Bar("imports", setting.rounds * len(turns)) as bar:
        rounds = take_turns(turns, setting.rounds, lambda statement: bar.advance())
    return {"rounds": rounds, "median ms": {statement: 1000 * median(some) for statement, some in rounds.items()}}


def _time(statement: str, before: str, number: int) -> float:
    timed = statement.partition(",")[0]
    program = f"import time\n{before}\nbegin = time.perf_counter()\n{timed}\nprint(time.perf_counter() - begin)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(run.stdout)


IMPORTS = Workload("imports", "imports, in fresh interpreters", _measure)
