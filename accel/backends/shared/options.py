"""Checks of options and devices that several backends share."""

from __future__ import annotations

import torch

from accel.recipes.options import Options


def check_positive(options: Options, *names: str) -> None:
    """Raise ValueError unless these options are positive ints, or None."""
    for name in names:
        value = getattr(options, name)
        if value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{name} must be a positive int or None, got {value!r}")


def check_threads(threads: int | str) -> None:
    """Raise ValueError unless a number of threads is "auto" or a positive int."""
    if threads != "auto" and (type(threads) is not int or threads < 1):
        raise ValueError(f"threads must be 'auto' or a positive int, got {threads!r}")


def missing_gpu(device: torch.device, otherwise: str) -> str | None:
    """The reason why a GPU cannot be used, with an alternative; None if it can."""
    if not torch.cuda.is_available():
        return f"no CUDA device; {otherwise}"
    if (device.index or 0) >= torch.cuda.device_count():
        return f"there is no {device}: torch sees {torch.cuda.device_count()} CUDA devices"
    return None
