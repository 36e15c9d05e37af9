"""The command line: ``python -m accel``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from accel import __version__
from accel.cli import cache, compare, info, run, verify, warm
from accel.cli.arguments import command


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; wrong usage exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m accel",
        description="Unchanged torchvision scripts, decoded and augmented by accel's image backends.",
    )
    parser.add_argument("--version", action="version", version=f"accel {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, dest="command", metavar="COMMAND")
    for each in (run, compare, verify, cache, info, warm):
        each.add_parser(commands)
    args = parser.parse_args(argv)
    return command(args.command)(args.run)(args)


if __name__ == "__main__":
    sys.exit(main())
