"""Running kernels: several blocks at once; of all threads those at the lowest position in the text run first.

So diverged threads reconverge where their paths join. A barrier holds until all live threads of a block are at it, and
it must be the same one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from rig.ptx.memory import SHARED, Access, Fault, GlobalMemory, SharedMemory
from rig.ptx.parse import Block, Line, Module, split
from rig.ptx.translate import TYPES, Translator

Array = Any  # NumPy's; its own types cannot tell what an instruction makes

THREADS, WARP = 256, 32
_MOST_STEPS = 10_000_000


class Program:
    """A kernel, ready to run.

    Attributes:
        ran: for each instruction the number of warps that ran it, over all launches; a warp runs an instruction once
            for all of its threads that are there together.
    """

    def __init__(self, module: Module, name: str) -> None:
        self.kernel = module.kernels[name]
        self.name = name
        self.blocks = split(self.kernel)
        self._content = {
            symbol: np.frombuffer(variable.content, np.uint8).copy()
            for symbol, variable in module.variables.items()
            if variable.content is not None
        }
        addresses = {symbol: content.ctypes.data for symbol, content in self._content.items()}
        shared = SharedMemory(self.kernel.shared, 0, np.random.default_rng(0))
        addresses.update({symbol: address - SHARED for symbol, address in shared.addresses.items()})
        self.translator = Translator(self.kernel, self.blocks, {**addresses, "shared": SHARED})
        self.functions: list[Any] = [None] * len(self.blocks)
        self.ran = np.zeros(len(self.kernel.code), np.int64)

    @property
    def allocations(self) -> Iterator[tuple[int, int]]:
        """Addresses and sizes of the module's own variables."""
        return ((content.ctypes.data, content.size) for content in self._content.values())

    def function(self, number: int) -> Any:
        if self.functions[number] is None:
            self.functions[number] = self.translator.function(self.blocks[number])
        return self.functions[number]

    @property
    def warp_instructions(self) -> int:
        return int(self.ran.sum())

    def by_line(self) -> Counter[Line]:
        """``ran`` summed by line of the sources."""
        found: Counter[Line] = Counter()
        for instruction, ran in zip(self.kernel.code, self.ran.tolist(), strict=True):
            found[instruction.chain[0]] += ran
        return found


class Machine:
    """Launches kernels. All that is random (the order of blocks and of atomics, garbage) is drawn from ``rng``."""

    def __init__(self, rng: np.random.Generator, at_once: int = 32, shifts: bool = False) -> None:
        """``at_once``: the number of blocks that run together. ``shifts``: whether between two barriers some warps,
        drawn anew each time, run only when the others cannot go on."""
        self.rng, self.at_once, self.shifts = rng, at_once, shifts
        self._pool = np.zeros(0, np.uint8)

    def garbage(self, size: int) -> Array:
        """More than ``size`` random bytes."""
        if len(self._pool) < 2 * size:
            self._pool = np.frombuffer(self.rng.bytes(2 * size), np.uint8)
        return self._pool

    def launch(self, program: Program, grid: int, parameters: dict[str, int], known: GlobalMemory) -> None:
        """Run all blocks of a grid, in random order.

        Raises:
            Fault: see ``memory``; or not all threads of a block reach a barrier.
        """
        order = self.rng.permutation(grid)
        with np.errstate(all="ignore"):
            for start in range(0, grid, self.at_once):
                Group(self, program, order[start : start + self.at_once], grid, parameters, known).run()


class Group:
    """Blocks that run at once: their threads, registers and shared memory."""

    def __init__(
        self, machine: Machine, program: Program, numbers: Array, grid: int, parameters: dict[str, int],
        known: GlobalMemory,
    ) -> None:  # fmt: skip
        self._machine, self._program, self._grid, self._parameters = machine, program, grid, parameters
        self.count = THREADS * len(numbers)
        self._all = self._ids = np.arange(self.count)
        self._row = self._all // THREADS
        self._thread = (self._all % THREADS).astype(np.uint32)
        self._block = numbers.astype(np.uint32)[self._row]
        shared = SharedMemory(program.kernel.shared, len(numbers), machine.rng)
        self._access = Access(known, shared, self._row * shared.size, machine.rng, self._who)
        self._access.stamps = self._thread.copy()
        self._second_shift: dict[int, list[Array]] = {}
        self._registers = [self._garbage(TYPES[program.kernel.type_of(name)]) for name in program.translator.registers]

    def _garbage(self, dtype: Any) -> Array:
        size, pool = self.count * dtype.itemsize, self._machine.garbage(8 * self.count)
        start = int(self._machine.rng.integers(len(pool) - size + 1)) & -8
        found = pool[start : start + size].copy().view(np.uint8 if dtype.kind == "b" else dtype)
        return found < 128 if dtype.kind == "b" else found

    # -- the order of things

    def run(self) -> None:
        program = self._program
        ready = self._begun({0: [self._all]})
        waiting: list[tuple[int, Array]] = []
        for _ in range(_MOST_STEPS):
            if not ready and self._second_shift:
                ready, self._second_shift = self._second_shift, {}
            elif not ready:
                if not waiting:
                    return
                ready, waiting = self._begun(self._released(waiting)), []
            number = min(ready)
            parts = ready.pop(number)
            threads = parts[0] if len(parts) == 1 else np.concatenate(parts)
            block = program.blocks[number]
            everyone = len(threads) == self.count
            if everyone:
                threads = self._all
            self._ids = threads
            try:
                guard = program.function(number)(self._registers, None if everyone else threads, self)
            except ZeroDivisionError as error:
                first, last = (program.kernel.code[at].line for at in (block.start, block.stop - 1))
                raise Fault(f"{program.name}: PTX lines {first} to {last}: {error}") from error
            warps = np.zeros(self.count // WARP, bool)
            warps[threads // WARP] = True
            program.ran[block.start : block.stop] += np.count_nonzero(warps)
            if block.ends == "bar":
                waiting.append((number, threads))
            elif block.guard:
                self._part(ready, threads, guard, block, number)
            elif block.ends != "ret":
                ready.setdefault(block.target if block.ends == "bra" else number + 1, []).append(threads)
        raise Fault(f"{program.name} does not end")

    def _begun(self, ready: dict[int, list[Array]]) -> dict[int, list[Array]]:
        """The threads that begin a phase; those that run later are kept."""
        if not self._machine.shifts:
            return ready
        second = self._machine.rng.random(self.count // WARP) < 0.5
        whole = {number: np.concatenate(parts) for number, parts in ready.items()}
        shifts = [
            {number: [some] for number, each in whole.items() if len(some := each[second[each // WARP] == turn])}
            for turn in (False, True)
        ]
        first, self._second_shift = shifts if shifts[0] else shifts[::-1]
        return first

    def _part(self, ready: dict[int, list[Array]], threads: Array, guard: Array, block: Block, number: int) -> None:
        taken = int(np.count_nonzero(guard))
        if taken == len(threads):
            ready.setdefault(block.target, []).append(threads)
        elif taken == 0:
            ready.setdefault(number + 1, []).append(threads)
        else:
            ready.setdefault(block.target, []).append(threads[guard])
            ready.setdefault(number + 1, []).append(threads[~guard])

    def _released(self, waiting: list[tuple[int, Array]]) -> dict[int, list[Array]]:
        """Release threads from their barriers, as every live thread is at one."""
        place = np.full(self.count // THREADS, -1)
        for number, threads in waiting:
            rows = self._row[threads]
            other = (place[rows] >= 0) & (place[rows] != number)
            if other.any():
                code, blocks = self._program.kernel.code, self._program.blocks
                each = [str(code[blocks[at].stop - 1]) for at in (number, place[rows[other][0]])]
                raise Fault(f"{self._program.name}: threads of a block stand at two barriers: {' and '.join(each)}")
            place[rows] = number
        self._access.stamps += np.uint32(256)
        found: dict[int, list[Array]] = {}
        for number, threads in waiting:
            found.setdefault(number + 1, []).append(threads)
        return found

    # -- what the blocks' code asks for

    def begin(self) -> int:
        """The number of threads that run."""
        return len(self._ids)

    def parameter(self, name: str) -> Array:
        return np.full(len(self._ids), self._parameters[name], np.uint64)

    def special(self, name: str) -> Array:
        if name == "%tid.x":
            return self._thread[self._ids]
        if name == "%ctaid.x":
            return self._block[self._ids]
        return np.full(len(self._ids), {"%ntid.x": THREADS, "%nctaid.x": self._grid}[name], np.uint32)

    def load(self, number: int, space: str, addresses: Any, dtype: Any, count: int) -> list[Array]:
        return self._access.load(number, self._ids, space, self._each(addresses), dtype, count)

    def store(self, number: int, space: str, addresses: Any, dtype: Any, given: list[Any]) -> None:
        self._access.store(number, self._ids, space, self._each(addresses), dtype, given)

    def atomic(self, number: int, space: str, addresses: Any, dtype: Any, op: str, value: Any) -> Array:
        return self._access.atomic(number, self._ids, space, self._each(addresses), dtype, op, value)

    def _each(self, addresses: Any) -> Array:
        return addresses if np.ndim(addresses) else np.full(len(self._ids), addresses)

    def _who(self, number: int, thread: Any, address: int) -> str:
        instruction = self._program.kernel.code[number]
        return (
            f"{self._program.name}: {instruction}: thread {self._thread[thread]} of block {self._block[thread]}, "
            f"{address:#x},"
        )
