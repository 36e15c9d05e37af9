"""Another name of tests/support/processes.py."""

from tests.support.processes import *  # noqa: F403
