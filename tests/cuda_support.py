"""Another name of tests/support/cuda.py."""

from tests.support.cuda import *  # noqa: F403
