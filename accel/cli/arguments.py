"""Types of arguments that the commands share, and the backend they name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import accel


def comma_separated(text: str) -> list[str]:
    """An argparse type: words between commas."""
    return text.split(",")


class WrongUsage(Exception):
    """What the user asks for cannot be had; the message says why. The exit status is 2."""


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type: an int that is at least ``least``."""

    def parse(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    parse.__name__ = "int"  # what argparse calls it in its messages
    return parse


def backend_of(name: str, options: Mapping[str, Any]) -> str:
    """The backend that has that name here, with these options.

    Raises:
        WrongUsage: there is none, or it has no such options.
    """
    try:
        with accel.image_backend(name, **options):
            return accel.get_image_backend()
    except (accel.BackendUnavailable, TypeError, ValueError) as error:
        raise WrongUsage(str(error)) from error
