"""The folder that ``python -m accel run`` puts first in PYTHONPATH."""
