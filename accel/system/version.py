"""The one place that states accel's version."""

__version__ = "0.2.0"
