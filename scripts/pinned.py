#!/usr/bin/env python3
"""Write constraints.txt: the versions installed here of all that accel and the extras for development need.

The next to develop gets the same by pip install -c constraints.txt -e ".[test,bench,docs]".
"""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import licenses

FILE = Path(__file__).parents[1] / "constraints.txt"
EXTRAS = ("test", "bench", "docs")
HEAD = """\
# Versions that the tests have passed with, on Python {python}; made by scripts/pinned.py.
# pip install -c constraints.txt -e ".[test,bench,docs]"
"""


def made() -> str:
    """The file's text."""
    lines = [f"{name}=={metadata.version(name)}\n" for name in sorted(licenses.needed(EXTRAS))]
    return HEAD.format(python=platform.python_version()) + "".join(lines)


if __name__ == "__main__":
    FILE.write_text(made())
