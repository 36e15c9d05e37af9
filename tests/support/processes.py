"""What the tests of hard use share: loaders of large batches, and scripts in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers
import pytest
from torch.utils.data import DataLoader
from torchvision import transforms as T

TIMEOUT = 100
HERE = Path(__file__).parent
LARGE = T.Compose([T.Resize((300, 300)), T.ToTensor()])  # batches of more than 1 MB: their memory is used again

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, forks")


def loader(dataset: Any, workers: int = 0, **options: Any) -> DataLoader[Any]:
    options = {"batch_size": 3, "timeout": TIMEOUT * (workers > 0), **options}
    return DataLoader(dataset, num_workers=workers, **options)


def plain(function: Callable[[], Any]) -> Any:
    """What torchvision makes of it."""
    return helpers.run("torchvision", function)[0]


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A fresh interpreter that runs ``script`` with the tests' folder on its path, in a process group of its own."""
    # Ctrl-C works in it even where whoever runs the tests has been started with that signal ignored
    prelude = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{prelude}; sys.path.insert(0, {str(HERE)!r})\n{script}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str, str]:
    """Exit status and output; a process that hangs is killed with its children, and the test fails."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"it hangs; so far:\n{out}\n{err}")
    return process.returncode, out, err
