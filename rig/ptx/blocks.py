"""A kernel's basic blocks, and which registers are handed from one to another."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .parse import Instruction, Kernel

_REGISTER = re.compile(r"%[a-z]+\d*")
SPECIAL = ("%tid", "%ctaid", "%ntid", "%nctaid")
_NO_DESTINATION = ("st", "bra", "bar", "ret", "membar", "fence", "red")


@dataclass
class Block:
    """Instructions ``start`` to before ``stop``, run in a row.

    Attributes:
        ends: what the last one does: "bra", "bar", "ret", or "" where the next block simply follows.
        target: the number of the block that a branch goes to.
        taken, given: registers that it has from blocks before, and that blocks behind have from it.
    """

    start: int
    stop: int
    ends: str = ""
    target: int = -1
    guard: str = ""
    taken: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)


def operands(instruction: Instruction) -> tuple[list[str], list[str]]:
    """The registers that are read, and those that are written."""
    targets = 0 if instruction.parts[0] in _NO_DESTINATION else 1
    written = _registers(*instruction.operands[:targets])
    return _registers(instruction.guard, *instruction.operands[targets:]), written


def _registers(*texts: str) -> list[str]:
    return [name for text in texts for name in _REGISTER.findall(text) if name not in SPECIAL]


def split(kernel: Kernel) -> list[Block]:
    """The blocks in the order of the text; threads of the first one run first."""
    code = kernel.code
    ends = [number + 1 for number, each in enumerate(code) if each.parts[0] in ("bra", "bar", "ret")]
    starts = sorted({0, *ends, *kernel.labels.values()} - {len(code)})
    numbers = {start: number for number, start in enumerate(starts)}
    blocks = []
    for start, stop in zip(starts, [*starts[1:], len(code)], strict=True):
        last = code[stop - 1]
        block = Block(start, stop)
        if last.parts[0] in ("bra", "bar", "ret"):
            block.ends, block.guard = last.parts[0], last.guard
        if block.ends == "bra":
            block.target = numbers[kernel.labels[last.operands[0]]]
        elif block.guard:
            raise NotImplementedError(f"a guard: {last}")
        if any(each.guard for each in code[start : stop - 1]):
            raise NotImplementedError(f"a guard: {next(each for each in code[start:stop] if each.guard)}")
        blocks.append(block)
    if blocks[-1].ends != "ret" and not (blocks[-1].ends == "bra" and not blocks[-1].guard):
        raise NotImplementedError(f"{kernel.name} runs over its end")
    _hand_over(kernel, blocks)
    return blocks


def followers(blocks: list[Block], number: int) -> list[int]:
    block = blocks[number]
    found = [] if block.ends == "ret" or (block.ends == "bra" and not block.guard) else [number + 1]
    return [*found, block.target] if block.ends == "bra" else found


def _hand_over(kernel: Kernel, blocks: list[Block]) -> None:
    """Liveness, from the last block backwards until nothing changes."""
    reads: list[set[str]] = []
    writes: list[set[str]] = []
    for block in blocks:
        read: set[str] = set()
        written: set[str] = set()
        for instruction in kernel.code[block.start : block.stop]:
            sources, targets = operands(instruction)
            read.update(name for name in sources if name not in written)
            written.update(targets)
        reads.append(read)
        writes.append(written)
    alive = [set(read) for read in reads]
    behind: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            behind[number] = set().union(*(alive[each] for each in followers(blocks, number)))
            found = reads[number] | (behind[number] - writes[number])
            changed |= found != alive[number]
            alive[number] = found
    for number, block in enumerate(blocks):
        block.taken = sorted(reads[number])
        block.given = sorted(writes[number] & behind[number])
