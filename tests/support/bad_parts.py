"""Parts of ``bench.gpu`` in which something goes wrong; they run in processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

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
