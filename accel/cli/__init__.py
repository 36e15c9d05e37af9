"""The command line, ``python -m accel``: a file for each command, and the code they share with ``bench``."""
