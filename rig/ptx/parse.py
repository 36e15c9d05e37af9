"""Parsing PTX to kernels: registers, shared variables, instructions with their lines; and basic blocks."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Line = tuple[str, int]
"""A file's name and a line number, from 1."""


class Instruction(NamedTuple):
    """An instruction: ``guard`` is its predicate ("%p1", "!%p1" or ""), ``parts`` are the parts of its name."""

    line: int
    chain: tuple[Line, ...]  # its line in the sources, and the lines into which it was inlined
    guard: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join(self.parts)

    @property
    def source(self) -> str:
        return " < ".join(f"{file}:{line}" for file, line in self.chain)

    def __str__(self) -> str:
        return f"{self.name} {', '.join(self.operands)} (PTX line {self.line}, {self.source or 'no source line'})"


class Variable(NamedTuple):
    """A named variable in memory. ``content``: None if it has no initial value."""

    size: int
    alignment: int
    content: bytes | None = None


@dataclass
class Kernel:
    """A kernel. Attributes:

    parameters: their names, in order.
    registers: types, by name for those declared one by one, and by prefix for numbered ones.
    labels: the numbers of the instructions that follow them.
    """

    name: str
    parameters: list[str] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def type_of(self, register: str) -> str:
        return self.registers.get(register) or self.registers[register.rstrip("0123456789")]


@dataclass
class Module:
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_VARIABLE = re.compile(
    r"\.(?P<space>global|shared|const|local)\s+\.align (?P<align>\d+) \.[a-z](?P<bits>\d+) (?P<name>[\w$]+)"
    r"(?:\[(?P<count>\d+)\])?(?:\s*=\s*(?P<value>.+))?$"
)
_REGISTER = re.compile(r"\.reg \.(?P<type>\w+)\s+(?P<name>%\w+)(?P<many><\d+>)?$")
_INSTRUCTION = re.compile(r"(?:@(?P<guard>!?%\w+)\s+)?(?P<name>[a-z][\w.:]*)(?:\s+(?P<operands>.*))?$")
_IGNORED = (".version", ".target", ".address_size", ".maxntid", ".minnctapersm", ".pragma", ".weak", ".section")


def parse(text: str) -> Module:
    """Read PTX.

    Raises:
        NotImplementedError: it has something that is not supported here.
    """
    module = Module()
    kernel: Kernel | None = None
    places = _Places(text)
    header = False  # between a kernel's name and its body
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("//")[0].strip()
        if line.startswith((".section", ".file")):
            kernel = None if line.startswith(".section") else kernel
            continue
        if match := re.match(r"\.visible \.entry (\w+)\(", line):
            kernel = module.kernels[match[1]] = Kernel(match[1])
            header = True
        elif header:
            if match := re.match(r"\.param \.u64 (?:\.ptr \.align \d+ )?(\w+),?$", line):
                assert kernel is not None
                kernel.parameters.append(match[1])
            header = line != "{"
        elif line.startswith(".loc"):
            places.take(line)
        elif match := re.match(r"(\$?\w+):$", line):
            if kernel is not None:
                kernel.labels[match[1]] = len(kernel.code)
        else:
            for statement in _statements(line):
                _take(module, kernel, statement, number, places.chain)
    return module


class _Places:
    """Reads .loc lines, in order.

    Attributes:
        chain: the lines of the instructions that follow.
    """

    _LOC = re.compile(r"\.loc\s+(\d+ \d+ \d+)(?:, function_name \S+, inlined_at (\d+ \d+ \d+))?$")

    def __init__(self, text: str) -> None:
        found = re.finditer(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', text, re.MULTILINE)
        self._files = {match[1]: Path(match[2]).name for match in found}
        self._inlined: dict[str, str] = {}  # where each place was last said to be inlined
        self.chain: tuple[Line, ...] = ()

    def take(self, line: str) -> None:
        match = self._LOC.match(line)
        if match is None:
            raise NotImplementedError(line)
        place, at = match.groups()
        if place.split()[1] == "0":  # of no line
            return
        if at is None:
            self._inlined.pop(place, None)
        else:
            self._inlined[place] = at
        chain: list[Line] = []
        step: str | None = place
        while step is not None and len(chain) < 16:
            file, number, _ = step.split()
            chain.append((self._files.get(file, "?"), int(number)))
            step = self._inlined.get(step)
        self.chain = tuple(chain)


def _statements(line: str) -> list[str]:
    """The statements of a line, without braces of scopes."""
    line = re.sub(r"^\{\s*(?=\.|$)|(?:(?<=;)|^)\s*\}$", "", line)
    return [each for each in map(str.strip, line.split(";")) if each]


def _take(module: Module, kernel: Kernel | None, statement: str, number: int, chain: tuple[Line, ...]) -> None:
    if statement.startswith(_IGNORED):
        return
    if match := _VARIABLE.match(statement):
        made = _variable(match)
        if match["space"] == "shared" and kernel is not None:
            kernel.shared[match["name"]] = made
        elif match["space"] == "global" and kernel is None:
            module.variables[match["name"]] = made
        else:
            raise NotImplementedError(f"PTX line {number}: {statement}")
    elif kernel is not None and (match := _REGISTER.match(statement)):
        kernel.registers[match["name"]] = match["type"]
    elif kernel is not None and (match := _INSTRUCTION.match(statement)):
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", match["operands"] or "")
        parts = tuple(match["name"].split("."))
        kernel.code.append(Instruction(number, chain, match["guard"] or "", parts, tuple(operands)))
    elif kernel is not None or not statement.startswith((".b8", ".b32", ".b64", ".u32", "}")):
        raise NotImplementedError(f"PTX line {number}: {statement}")


def _variable(match: re.Match[str]) -> Variable:
    each = _BYTES[match["bits"]]
    size, value = each * int(match["count"] or 1), match["value"]
    content = None
    if value is not None:
        values = [int(item, 0) for item in value.strip("{} ").split(",")]
        content = b"".join((item % (1 << 8 * each)).to_bytes(each, "little") for item in values).ljust(size, b"\0")
    return Variable(size, int(match["align"]), content)


# -- basic blocks, and the registers that are handed from one to another

_NAME = re.compile(r"%[a-z]+\d*")
SPECIAL = ("%tid", "%ctaid", "%ntid", "%nctaid")
_NO_DESTINATION = ("st", "bra", "bar", "ret", "membar", "fence", "red")


@dataclass
class Block:
    """Instructions ``start`` to ``stop`` (excluded), which run in a row.

    Attributes:
        ends: the last instruction: "bra", "bar", "ret", or "" if the next block simply follows.
        target: the number of the block to which a branch goes.
        taken, given: registers that it gets from earlier blocks, and that later blocks get from it.
    """

    start: int
    stop: int
    ends: str = ""
    target: int = -1
    guard: str = ""
    taken: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)


def operands(instruction: Instruction) -> tuple[list[str], list[str]]:
    """The registers that an instruction reads, and those that it writes."""
    targets = 0 if instruction.parts[0] in _NO_DESTINATION else 1
    written = _registers(*instruction.operands[:targets])
    return _registers(instruction.guard, *instruction.operands[targets:]), written


def _registers(*texts: str) -> list[str]:
    return [name for text in texts for name in _NAME.findall(text) if name not in SPECIAL]


def split(kernel: Kernel) -> list[Block]:
    """The basic blocks of a kernel, in the order of the text."""
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
    """Liveness analysis, from the last block backwards until nothing changes."""
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
