"""Parts of ``bench.gpu`` in which something goes wrong; they run in processes of their own.

``python -m tests.support.bad_parts [PART] FILE OPTIONS`` runs steps as ``bench.gpu.part`` does.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.gpu import part, plan
from bench.gpu.setting import NotInstalled, Setting, Step


def hang(setting: Setting) -> Iterator[Step]:
    """A step that does not end, and has started a process."""

    def hang() -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (setting.out / "child").write_text(str(child.pid))
        time.sleep(600)

    return around("hang", hang)


def crash(setting: Setting) -> Iterator[Step]:
    """A step that ends its process, and has started another one."""

    def crash() -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (setting.out / "child").write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGABRT)

    return around("crash", crash)


def around(name: str, step: Callable[[], Any]) -> Iterator[Step]:
    def not_there() -> dict[str, Any]:
        raise NotInstalled("that")

    yield "good", lambda: {"images/s": 1}
    yield "not there", not_there
    yield "error", lambda: {"images/s": 1 / 0}
    yield name, step
    yield "last", lambda: {"images/s": 2}


def never(setting: Setting) -> Iterator[Step]:
    """A part that does not get to its first step."""
    time.sleep(600)
    yield from around("", dict)


def counted(setting: Setting) -> Iterator[Step]:
    """Steps that leave their last words in a file when they run."""

    def counting(name: str, step: Callable[[], Any]) -> Any:
        with (setting.out / "ran").open("a") as file:
            file.write(f"{name.split()[-1]} ")
        return step()

    for name, step in around("late", dict):
        yield name, partial(counting, name, step)


if __name__ == "__main__":
    *named, file, options = sys.argv[1:]
    told = json.loads(options)
    plan.PARTS[told["part"]] = f"{__name__}:{(named or [told['part']])[0]}"
    part.main(Path(file), told)
