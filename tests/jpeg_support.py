"""Another name of tests/support/jpeg.py."""

from tests.support.jpeg import *  # noqa: F403
