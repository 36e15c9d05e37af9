"""Compiling the kernels for a GPU: by NVRTC through cuda.core, for any architecture, with or without a GPU."""

from __future__ import annotations

import io
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from accel.backends.cuda.declarations import SOURCES, kernels
from accel.errors import BackendUnavailable, attempt
from accel.system import counters
from accel.system.imports import LazyModule
from accel.system.native.object_cache import cached, digest, folder

_core, _nvrtc = LazyModule("cuda.core"), LazyModule("cuda.bindings.nvrtc")

UNITS = {
    unit: kernels(f"{unit}.cu")
    for unit in (path.relative_to(SOURCES).with_suffix("").as_posix() for path in sorted(SOURCES.rglob("*.cu")))
}
"""The kernels of every translation unit, which is a .cu file."""

KERNELS = tuple(name for names in UNITS.values() for name in names)
"""The kernels of all units; launches of a whole batch refer to them by their positions here."""

_SETTINGS = ("std=c++17", "fmad=false")  # contraction would round the coefficients' arithmetic otherwise


def unavailable() -> str | None:
    """The reason why kernels are available neither from NVRTC nor from the cache, or None; no GPU is queried."""
    try:
        _nvrtc.nvrtcVersion()
    except Exception as error:  # each version of cuda.bindings has its own
        kept = attempt(folder)
        if not (isinstance(kept, Path) and any(kept.glob("*.cubin"))):
            return f"NVRTC cannot be loaded ({error}): pip install nvidia-cuda-nvrtc"
    return None


def arch_of(major: int, minor: int) -> str:
    """The architecture to compile for on a GPU of this compute capability: "sm_90"; or, if NVRTC is older than the GPU,
    the newest PTX that it knows, "compute_90", which the driver compiles.

    Raises:
        BackendUnavailable: NVRTC compiles for newer GPUs only.
    """
    own = 10 * major + minor
    try:
        _, known = _nvrtc.nvrtcGetSupportedArchs()
    except Exception:  # no NVRTC, but the cache may have the kernels
        return f"sm_{own}"
    if own in known:
        return f"sm_{own}"
    older = [arch for arch in known if arch < own]
    version = ".".join(map(str, _nvrtc.nvrtcVersion()[1:]))
    if not older:
        raise BackendUnavailable(f"NVRTC {version} compiles for sm_{min(known)} and newer, and this GPU is sm_{own}")
    arch = f"compute_{max(older)}"
    counters.fallback(f"NVRTC {version} does not know sm_{own}; the driver compiled the kernels from PTX for {arch}")
    return arch


def is_ptx(arch: str) -> bool:
    """Whether an architecture means PTX, which the driver compiles."""
    return arch.startswith("compute")


def unit_of(kernel: str) -> str:
    """The translation unit that has a kernel."""
    return next(unit for unit, names in UNITS.items() if kernel in names)


def label_of(unit: str) -> str:
    """A unit's name for use in a file name."""
    return unit.replace("/", "-")


class Usage(NamedTuple):
    """The resources that a kernel uses, as ptxas reports them: registers, spilled bytes, bytes of shared memory."""

    kernel: str
    registers: int
    spilled: int
    shared: int


def cubin(name: str, arch: str) -> bytes:
    """The device code of a translation unit for an architecture such as "sm_90", or its PTX for "compute_90"; from the
    cache if it is there.

    Raises:
        BackendUnavailable: NVRTC is missing or does not know the architecture.
    """
    label = f"{label_of(name)}-{arch}-{key(arch, _compilers(), *_SETTINGS)}.cubin"
    return cached(label, lambda: build(name, arch)[0])


def key(*parts: str) -> str:
    """The key, in ``accel.system.native.object_cache``, of code compiled from all sources in this folder with these
    settings."""
    return digest([*SOURCES.rglob("*.cu"), *SOURCES.rglob("*.h")], SOURCES, *parts)


def options(name: str, arch: str) -> Any:
    """Options of cuda.core for a translation unit."""
    return _core.ProgramOptions(
        name=f"{name}.cu", arch=arch, std="c++17", fma=False, include_path=str(SOURCES), ptxas_options=["-v"]
    )


def build(name: str, arch: str) -> tuple[bytes, list[Usage]]:
    """Compile a translation unit, to PTX for "compute_90", without the cache; return code and usage (none for PTX).

    Raises:
        BackendUnavailable: NVRTC is missing or refuses it; the message has its log.
    """
    try:
        program = _core.Program
    except ImportError as error:
        raise BackendUnavailable(f"cuda.core is missing ({error}): pip install 'accel-vision[cuda]'") from error
    log = io.StringIO()
    try:
        source = (SOURCES / f"{name}.cu").read_text()
        if is_ptx(arch):
            return ptx(source, name, options(name, arch)), []
        code = program(source, "c++", options(name, arch)).compile("cubin", logs=log).code
    except Exception as error:  # NVRTC missing, unknown architecture, an error in the source
        raise BackendUnavailable(f"NVRTC cannot compile {name}.cu for {arch}: {error}\n{log.getvalue()}") from error
    return bytes(code), usage(log.getvalue())


def ptx(source: str, name: str, options: Any) -> bytes:
    """Compile a source to PTX, without cuda.core, which would need a driver.

    Raises:
        RuntimeError: NVRTC refuses it.
    """
    given = [each for each in options.as_bytes("nvrtc") if b"ptxas" not in each]
    _, program = _nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    (error,) = _nvrtc.nvrtcCompileProgram(program, len(given), given)
    failed = error != _nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = (_nvrtc.nvrtcGetProgramLogSize if failed else _nvrtc.nvrtcGetPTXSize)(program)
    text = b" " * int(size)
    (_nvrtc.nvrtcGetProgramLog if failed else _nvrtc.nvrtcGetPTX)(program, text)
    _nvrtc.nvrtcDestroyProgram(program)
    if failed:
        raise RuntimeError(f"NVRTC refuses {name}: {text.decode()}")
    return text.rstrip(b"\0")


_KERNEL = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def usage(log: str) -> list[Usage]:
    """The resources of every kernel, from ptxas' report."""
    found = []
    for match in _KERNEL.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        spilled = int(match["stores"]) + int(match["loads"])
        found.append(Usage(match["kernel"], int(match["registers"]), spilled, int(shared[1]) if shared else 0))
    return found


def _compilers() -> str:
    """Names and versions of the compilers, found without loading them."""
    found = []
    for package in ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
