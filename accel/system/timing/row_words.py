"""The layout, in words of 64 bits, of the row that each process measures into and of the block of all rows.

``accel.system.timing.measuring`` writes and reads it.
"""

from __future__ import annotations

import numpy as np

from accel.system.timing import ring
from accel.system.timing.clocks import STAGES, WIDTH

HEADER = ["generation", "pid", "begun_ns", "until_ns", "cpu_ns", "delayed_ns", "threads", "images", "draws", "ns"]
HEADER += ["before_cpu_ns", "delayed_images"]  # CPU time before the row was made; images when ``delayed_ns`` was read
HEADER += ["system_ns", "firsts", "first_cpu_ns", "first_system_ns", "first_images"]  # in ``cpu_ns``; first batches
GENERATION, PID, BEGUN, UNTIL, PROCESS_CPU, DELAYED, THREADS, IMAGES, DRAWS, SPAN = range(10)
BEFORE, DELAYED_IMAGES, SYSTEM, FIRSTS, FIRST_CPU, FIRST_SYSTEM, FIRST_IMAGES = range(10, 17)
WRITING, UNADDED = 17, 18  # odd while the row is being written; the number of entries that are not in the sums yet
SUMS_BEGIN = 20
MOST_UNADDED = 4096
UNADDED_BEGIN = SUMS_BEGIN + 2 * len(STAGES) * WIDTH
RINGS_BEGIN = UNADDED_BEGIN + MOST_UNADDED
TEXTS_BEGIN = RINGS_BEGIN + 2 * ring.WORDS
TEXTS, TEXT = 24, np.dtype("S248")
"""Statements of the user's that a process was found at: the most of them, and the longest name."""

ROWS, ROW = 512, TEXTS_BEGIN + TEXTS * (TEXT.itemsize // 8 + 1)
CONTROL, FOLDER = 128, 8
"""The number of words ahead of the rows, and the first of those that name the folder of events."""
