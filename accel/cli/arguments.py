"""Code that commands share: argument types and exit statuses. It imports no torch (``command_line``)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from accel.system.imports import LazyModule

_screen = LazyModule("accel.cli.screen", draws=True)  # it imports rich


class WrongUsage(Exception):
    """Error of a request that cannot be carried out; the message says why. The exit status is 2."""


class Red(Exception):
    """Error of values that are not those that were promised: no results are reported. The exit status is 1."""


def command(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator for the function of a command, which returns the exit status, or raises one of the above."""

    def decorate(main: Callable[..., int]) -> Callable[..., int]:
        @wraps(main)
        def run(*arguments: Any) -> int:
            try:
                return main(*arguments)
            except (WrongUsage, Red) as error:
                _screen.fail(name, str(error))
                return 1 if isinstance(error, Red) else 2

        return run

    return decorate


def cannot_read(error: OSError) -> NoReturn:
    """For ``os.walk``: a folder that cannot be read is an error."""
    raise WrongUsage(f"cannot read the folder {error.filename}: {error.strerror}")


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type: an int of at least ``least``."""

    def parse(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    parse.__name__ = "int"  # its name in argparse's messages
    return parse
