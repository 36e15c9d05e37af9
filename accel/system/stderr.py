"""Accel's own lines on standard error, which never disturb the script, even if nobody reads them any more."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


def say(text: str) -> None:
    """Write a line to standard error; do nothing if there is none, it is closed, or nobody reads it any more."""
    stream = sys.stderr
    with suppress(OSError, ValueError):  # nobody reads it any more; it is closed
        if type(stream) is io.TextIOWrapper:  # not through its buffer: text that cannot be written would stay there,
            stream.flush()  # and Python's exit status would be 120
            os.write(stream.fileno(), f"{text}\n".encode(stream.encoding, "backslashreplace"))
        elif stream is not None:
            print(text, file=stream, flush=True)


def is_terminal() -> bool:
    """Whether standard error is a terminal; False if there is none, or it is closed."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False
