"""The one place that states accel's version."""

__version__ = "0.1.0"
