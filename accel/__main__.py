"""The command line: ``python -m accel``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from accel import __version__
from accel.cli import compare, info, screen, verify, warm
from accel.cli.arguments import WrongUsage


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; wrong usage exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m accel",
        description="Unchanged torchvision scripts, decoded and augmented by accel's image backends.",
    )
    parser.add_argument("--version", action="version", version=f"accel {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, dest="command", metavar="COMMAND")
    for command in (compare, verify, info, warm):
        command.add_parser(commands)
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
    except WrongUsage as error:
        screen.fail(args.command, str(error))
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
