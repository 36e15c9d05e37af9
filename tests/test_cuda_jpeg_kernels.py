"""Another name of tests/support/jpeg.py."""

from tests.support.jpeg import lies, shape  # noqa: F401
