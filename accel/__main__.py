"""The command line: ``python -m accel``."""

from __future__ import annotations

import sys

from accel.cli.command_line import main

if __name__ == "__main__":
    sys.exit(main())
