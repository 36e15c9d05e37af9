"""Counts the device instructions that NVRTC makes of each line of the kernels. Needs no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from accel.backends.cuda import compile
from accel.backends.cuda.cache import SOURCES

ARCH = "sm_90"

Line = tuple[str, int]
"""The name of a file and a number in it, from 1."""

_PLACE = re.compile(r'//## File "([^"]+)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP|BRA `\(\.L_x_\d+\);\s*$)\S")


class Code(NamedTuple):
    """A kernel's instructions.

    Attributes:
        chains: how many have a chain of lines: where they stand, and where each function is that was inlined.
    """

    chains: Counter[tuple[Line, ...]]

    def only(self, *ranges: tuple[str, range], passing: bool = True) -> Code:
        """Those from these lines, or from functions that are called there."""
        found = {chain: number for chain, number in self.chains.items() if _passes(chain, ranges) == passing}
        return Code(Counter(found))

    def but(self, *ranges: tuple[str, range]) -> Code:
        """The others."""
        return self.only(*ranges, passing=False)

    def within(self, *ranges: tuple[str, range]) -> int:
        return self.only(*ranges).all

    @property
    def all(self) -> int:
        return self.chains.total()


def _passes(chain: tuple[Line, ...], ranges: tuple[tuple[str, range], ...]) -> bool:
    return any(name == file and line in lines for name, line in chain for file, lines in ranges)


def nvdisasm() -> str:
    """The path of CUDA's disassembler, which Triton brings as well.

    Raises:
        FileNotFoundError: there is none.
    """
    found = shutil.which("nvdisasm")
    spec = find_spec("triton")
    if found is None and spec is not None and spec.origin is not None:
        found = shutil.which("nvdisasm", path=str(Path(spec.origin).parent / "backends" / "nvidia" / "bin"))
    if found is None:
        raise FileNotFoundError("nvdisasm is missing: pip install triton, which has it, or CUDA's toolkit")
    return found


def kernels(unit: str) -> dict[str, Code]:
    """The kernels of a translation unit, compiled as for the device, with line numbers."""
    from cuda.core import Program

    options = compile.options(unit, ARCH)
    options.include_path, options.lineinfo = str(SOURCES), True
    code = Program((SOURCES / f"{unit}.cu").read_text(), "c++", options).compile("cubin").code
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(bytes(code))
        file.flush()
        done = subprocess.run([nvdisasm(), "-c", "-gi", file.name], capture_output=True, text=True, check=True)
    found = {}
    for section in done.stdout.split("//--------------------- .text.")[1:]:
        found[section.split(None, 1)[0]] = Code(_chains(section))
    return found


def _chains(section: str) -> Counter[tuple[Line, ...]]:
    found: Counter[tuple[Line, ...]] = Counter()
    chain: list[Line] = []
    complete = False
    for line in section.splitlines():
        if (place := _PLACE.search(line)) is not None:
            if complete:
                chain, complete = [], False
            chain.append((Path(place[1]).name, int(place[2])))
        elif _INSTRUCTION.match(line):
            found[tuple(chain)] += 1
            complete = True
    return found


def lines(file: str, first: str, last: str | None = None) -> tuple[str, range]:
    """The lines from the only one with the text ``first`` to the next with ``last``; by default that one alone.

    Raises:
        ValueError: the source has changed.
    """
    text = (SOURCES / file).read_text().splitlines()
    starts = [number for number, line in enumerate(text, 1) if first in line]
    if len(starts) != 1:
        raise ValueError(f"{file} has {len(starts)} lines with {first!r}")
    end = starts[0]
    if last is not None:
        end = next((number for number, line in enumerate(text, 1) if number > end and last in line), 0)
        if end == 0:
            raise ValueError(f"{file} has no {last!r} behind {first!r}")
    return Path(file).name, range(starts[0], end + 1)
