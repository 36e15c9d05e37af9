"""Lines on standard error that are accel's own: whoever reads them may be gone, and the script goes on all the same."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


def say(text: str) -> None:
    """Write a line, if there is anything to write it to."""
    stream = sys.stderr
    with suppress(OSError, ValueError):  # nobody reads it any more; it is closed
        if type(stream) is io.TextIOWrapper:  # not through its buffer: what cannot be written would stay there, and
            stream.flush()  # Python's exit status would be 120
            os.write(stream.fileno(), f"{text}\n".encode(stream.encoding, "backslashreplace"))
        elif stream is not None:
            print(text, file=stream, flush=True)


def is_terminal() -> bool:
    """Whether it is one, as far as there is any."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False
