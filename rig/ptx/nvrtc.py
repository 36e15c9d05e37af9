"""The PTX that NVRTC makes of a source, with the options of the backend's own builds."""

from __future__ import annotations

from functools import cache
from typing import Any

from accel.backends.cuda import compile
from accel.backends.cuda.cache import SOURCES

ARCH = "compute_90"


@cache
def of_unit(unit: str, arch: str = ARCH) -> str:
    """A translation unit of the backend."""
    return of_source((SOURCES / f"{unit}.cu").read_text(), f"{SOURCES / unit}.cu", lineinfo=True, arch=arch)


def of_source(source: str, name: str, **changed: Any) -> str:
    """Any source; ``changed``: other options than the backend's, by their names in ``cuda.core.ProgramOptions``."""
    from cuda.bindings import nvrtc

    chosen = compile.options(name, ARCH)
    for option, value in changed.items():
        setattr(chosen, option, value)
    options = [each for each in chosen.as_bytes("nvrtc") if b"ptxas" not in each]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"NVRTC refuses {name}: {log.decode()}")
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.decode().rstrip("\0")
