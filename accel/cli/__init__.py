"""The command line, ``python -m accel``: a file for each command, and the rooms they share with ``bench``."""
