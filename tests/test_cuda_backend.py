"""Another name of tests/support/cuda.py."""

from tests.support.cuda import pipeline  # noqa: F401
