"""Threads of other libraries in a DataLoader worker: pools of BLAS, OpenMP and MKL, by threadpoolctl, and OpenCV's."""

from __future__ import annotations

import os
import sys
import threading

from accel.system import counters
from accel.system.imports import LazyModule

_threadpoolctl = LazyModule("threadpoolctl")  # an optional dependency


def note() -> None:
    """Count the pools in ``accel.stats()`` if this process has threads that are not Python's (Linux)."""
    tasks = "/proc/self/task"
    if os.path.isdir(tasks) and len(os.listdir(tasks)) > threading.active_count():
        try:
            pools = {(each["internal_api"], each["num_threads"]) for each in _threadpoolctl.threadpool_info()}
        except ModuleNotFoundError:
            pools = {("of a library that threadpoolctl, if it were installed, would name", len(os.listdir(tasks)))}
        if "cv2" in sys.modules:
            pools.add(("opencv", sys.modules["cv2"].getNumThreads()))
        for name, threads in pools:
            if threads > 1:
                counters.thread_pool(f"{name}: {threads}")


def limit() -> None:
    """Give the pools of all libraries that are loaded one thread. Raises ModuleNotFoundError without threadpoolctl."""
    _threadpoolctl.threadpool_limits(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)
