"""Another name of tests/support/helpers.py."""

from tests.support.helpers import *  # noqa: F403
