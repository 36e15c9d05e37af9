"""Scripts that accel run starts, and their ends."""

import os
import subprocess
import sys
from collections.abc import Mapping

Ended = subprocess.CompletedProcess[str]


def ended(*words: str, environment: Mapping[str, str] | None = None, **options: object) -> Ended:
    """A Python with these arguments, when it has ended."""
    command, told = [sys.executable, *words], {**os.environ, **(environment or {})}
    given = {"capture_output": True, "text": True, "timeout": 120, "check": False, **options}
    return subprocess.run(command, env=told, **given)  # type: ignore[call-overload, no-any-return]


ENDS = """
import os, signal, sys
print("begun", flush=True)
if sys.argv[1] == "raise":
    def function():
        raise ValueError("mine")
    function()
if sys.argv[1] == "import":
    import torchvision
if sys.argv[1] == "exit":
    os._exit(5)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
signal.pause()
"""
