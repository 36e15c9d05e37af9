"""Counting the device instructions that NVRTC makes of each line of the kernels. Needs no GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accel.backends.cuda import compile
from accel.backends.cuda.declarations import SOURCES
from bench.gpu import gpus
from bench.gpu.gpus import Floats

Line = tuple[str, int]
"""A file's name and a line number, from 1."""

_PLACE = re.compile(r'//## File "([^"]+)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP|BRA `\(\.L_x_\d+\);\s*$)(?:@!?U?P\w+\s+)?([A-Z0-9]+)")


class Code(NamedTuple):
    """A kernel's instructions.

    Attributes:
        chains: counts of instructions, by ``gpus.KINDS``, for each chain of lines: their own line, and the lines into
            which it was inlined.
    """

    chains: dict[tuple[Line, ...], Floats]

    def only(self, *ranges: tuple[str, range], passing: bool = True) -> Code:
        """The instructions of these lines, and of functions called there."""
        return Code({chain: kinds for chain, kinds in self.chains.items() if _passes(chain, ranges) == passing})

    def but(self, *ranges: tuple[str, range]) -> Code:
        """The other instructions."""
        return self.only(*ranges, passing=False)

    def within(self, *ranges: tuple[str, range]) -> Floats:
        return self.only(*ranges).all

    @property
    def all(self) -> Floats:
        return sum(self.chains.values(), np.zeros(len(gpus.KINDS)))


def _passes(chain: tuple[Line, ...], ranges: tuple[tuple[str, range], ...]) -> bool:
    return any(name == file and line in lines for name, line in chain for file, lines in ranges)


def kernels(unit: str) -> dict[str, Code]:
    """The kernels of a translation unit, compiled as for the device, with line numbers."""
    from cuda.core import Program

    options = compile.options(unit, gpus.ARCH)
    options.include_path, options.lineinfo = str(SOURCES), True
    code = Program((SOURCES / f"{unit}.cu").read_text(), "c++", options).compile("cubin").code
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(bytes(code))
        file.flush()
        command = [str(gpus.toolkit_file("bin/nvdisasm")), "-c", "-gi", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for section in done.stdout.split("//--------------------- .text.")[1:]:
        found[section.split(None, 1)[0]] = Code(_chains(section))
    return found


def _chains(section: str) -> dict[tuple[Line, ...], Floats]:
    found: dict[tuple[Line, ...], Floats] = {}
    chain: list[Line] = []
    complete = False
    for line in section.splitlines():
        if (place := _PLACE.search(line)) is not None:
            if complete:
                chain, complete = [], False
            chain.append((Path(place[1]).name, int(place[2])))
        elif (instruction := _INSTRUCTION.match(line)) is not None:
            kinds = found.setdefault(tuple(chain), np.zeros(len(gpus.KINDS)))
            kinds[gpus.kind_of(instruction[1])] += 1
            complete = True
    return found


def lines(file: str, first: str, last: str | None = None) -> tuple[str, range]:
    """The lines from the only one with the text ``first`` to the next with ``last``; by default only the first.

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
