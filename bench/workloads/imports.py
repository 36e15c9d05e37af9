"""What importing costs, each round in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

from accel.cli import screen
from accel.cli.contest import Cost
from bench.workload import Row, Setting, Workload

_STATEMENTS = {  # what is timed, and what has been imported before
    "import torchvision": "pass",
    "import accel, after it": "import torchvision",
}
_PROGRAM = """
import time
{before}
wall, cpu = time.perf_counter(), time.process_time()
{timed}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def _measure(setting: Setting) -> list[Row]:
    rounds: dict[str, list[Cost]] = {statement: [] for statement in _STATEMENTS}
    with screen.Bar("imports: measuring", setting.rounds * len(_STATEMENTS)) as bar:
        for _ in range(setting.rounds):
            for statement, before in _STATEMENTS.items():
                rounds[statement].append(_time(statement, before))
                bar.advance()
    return [Row(statement, 1, costs) for statement, costs in rounds.items()]


def _time(statement: str, before: str) -> Cost:
    program = _PROGRAM.format(before=before, timed=statement.partition(",")[0])
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, cpu_seconds = map(float, run.stdout.split())
    return Cost(seconds, cpu_seconds)


IMPORTS = Workload("imports", "imports, in fresh interpreters", _measure, unit="import")
