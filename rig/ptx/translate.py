"""Translating basic blocks to NumPy code: a register is an array of one value for each thread that runs the block.

Floating-point arithmetic is IEEE's, rounded after every instruction; instructions that may be contracted or approximate
are refused.
"""

import re
from typing import Any

import numpy as np

from rig.ptx import arithmetic
from rig.ptx.parse import SPECIAL, Block, Instruction, Kernel

TYPES: dict[str, Any] = {
    **{f"{letter}{bits}": np.dtype(f"u{bits // 8}") for letter in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(bool),
}

_COMPARED = {"eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}", "ge": "{} >= {}"}
_COMPARED |= {
    "neu": "{} != {}",
    "equ": "~(({0} < {1}) | ({0} > {1}))",
    "ltu": "~({} >= {})",
    "leu": "~({} > {})",
    "gtu": "~({} <= {})",
    "geu": "~({} < {})",
}
_ROUNDED = {"rni": "np.rint({})", "rzi": "np.trunc({})", "rmi": "np.floor({})", "rpi": "np.ceil({})"}
_BITWISE = {"and": "{} & {}", "or": "{} | {}", "xor": "{} ^ {}"}
_ARITHMETIC = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}"}
_SIGNLESS = ("add", "sub", "mul", "mad", "mov", "selp", "not", "neg")  # the same bits, whatever the sign
_BITS = {"popc": "counted", "clz": "leading_zeros", "bfind": "found", "brev": "mirrored", "shf": "funnelled"}
_CALLED = {"div": "divided", "rem": "remainder", "shl": "left", "shr": "right"}


class Translator:
    """Makes functions from the blocks of one kernel.

    Attributes:
        registers: the positions, in the register file, of the registers that are handed over.
    """

    def __init__(self, kernel: Kernel, blocks: list[Block], addresses: dict[str, int]) -> None:
        """``addresses``: of all variables, by name."""
        self._kernel, self._addresses = kernel, addresses
        names = sorted({name for block in blocks for name in (*block.taken, *block.given)})
        self.registers = {name: number for number, name in enumerate(names)}
        self._scope: dict[str, Any] = {"np": np, **vars(arithmetic)}
        self._scope.update({f"t_{name}": dtype for name, dtype in TYPES.items()})

    def function(self, block: Block) -> Any:
        """A function ``f(R, s, m)`` that runs a block on registers R, threads s (None for all) and machine m.

        It returns the guard's values, if the block ends with one.
        """
        lines = ["n = m.begin()"]
        taken = [(_local(name), self.registers[name]) for name in block.taken]
        given = [(_local(name), self.registers[name]) for name in block.given]
        if taken:
            lines += ["if s is None: " + "; ".join(f"{name} = R[{number}]" for name, number in taken)]
            lines += ["else: " + "; ".join(f"{name} = R[{number}][s]" for name, number in taken)]
        for number in range(block.start, block.stop - bool(block.ends)):
            lines += self._lines(number, self._kernel.code[number])
        if given:
            lines += ["if s is None: " + "; ".join(f"R[{number}] = {name}" for name, number in given)]
            lines += ["else: " + "; ".join(f"R[{number}][s] = {name}" for name, number in given)]
        if block.guard:
            sign = "~" if block.guard.startswith("!") else ""
            lines += [f"return {sign}{_local(block.guard.lstrip('!'))}"]
        text = "def run(R, s, m):\n    " + "\n    ".join(lines)
        exec(compile(text, f"<{self._kernel.name} {block.start}>", "exec"), self._scope)
        return self._scope["run"]

    # -- operands

    def _constant(self, value: Any, name: str) -> str:
        dtype = TYPES[name]
        if isinstance(value, np.floating):  # its bits, whatever the type is
            made = np.array(value).view(dtype)[()]
        else:
            made = np.array(value % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)[()]
        label = f"c_{name}_{len(self._scope)}"
        self._scope[label] = made
        return label

    def _source(self, operand: str, name: str) -> str:
        """An operand as a value of a type."""
        if not operand.startswith("%"):
            return self._constant(self._literal(operand), name)
        if operand.split(".")[0] in SPECIAL:
            return f"m.special({operand!r})"
        held, wanted, local = TYPES[self._kernel.type_of(operand)], TYPES[name], _local(operand)
        if held == wanted:
            return local
        if held.itemsize == wanted.itemsize:
            return f"{local}.view(t_{name})"
        if held.itemsize > wanted.itemsize and held.kind == "u" and wanted.kind in "ui":
            return f"{local}.astype(t_u{8 * wanted.itemsize}).view(t_{name})"
        raise NotImplementedError(f"{operand} as {name}")

    def _literal(self, operand: str) -> Any:
        if operand[:2] in ("0f", "0F"):
            return np.frombuffer(bytes.fromhex(operand[2:]), ">f4").astype(np.float32)[0]
        if operand[:2] in ("0d", "0D"):
            return np.frombuffer(bytes.fromhex(operand[2:]), ">f8").astype(np.float64)[0]
        if re.match(r"-?\d", operand):
            return int(operand.rstrip("U"), 0)
        return self._addresses[operand]

    def _assigned(self, operand: str, expression: str, name: str) -> str:
        """Assign an expression's value of a type to a register, which may be wider."""
        held, made = TYPES[self._kernel.type_of(operand)], TYPES[name]
        if held == made:
            return f"{_local(operand)} = {expression}"
        if held.itemsize == made.itemsize:
            return f"{_local(operand)} = ({expression}).view(t_{self._kernel.type_of(operand)})"
        if held.itemsize > made.itemsize and held.kind == "u":
            wide = f"{made.kind}{held.itemsize}"
            return f"{_local(operand)} = ({expression}).astype({wide!r}).view({held.str!r})"
        raise NotImplementedError(f"{name} in {operand}")

    # -- instructions

    def _lines(self, number: int, instruction: Instruction) -> list[str]:
        try:
            return self._translated(number, instruction)
        except (KeyError, IndexError, NotImplementedError) as error:
            raise NotImplementedError(f"{self._kernel.name}: {instruction}: {error}") from error

    def _translated(self, number: int, instruction: Instruction) -> list[str]:
        kind, *rest = instruction.parts
        if kind in ("ld", "st", "atom"):
            return self._memory(number, instruction)
        if kind in ("membar", "fence"):
            return []
        if {"approx", "full", "ftz"} & set(rest):
            raise NotImplementedError("not exact")
        if kind == "cvt":
            return [self._converted(instruction)]
        target, *sources = instruction.operands
        name = rest[-1]
        if kind == "mov" and "{" in (target + sources[0]):
            return self._packed(target, sources[0], f"u{name[1:]}")
        if kind in _SIGNLESS and name[0] == "s" and rest[0] not in ("hi", "wide"):
            name = f"u{name[1:]}"
        if TYPES[name].kind == "f" and kind in ("add", "sub", "mul", "div", "rcp", "fma") and rest[0] != "rn":
            raise NotImplementedError("how it rounds is left to the compiler")
        expression, made = self._computed(kind, rest, sources, name)
        if not any(each.startswith("%") for each in sources):
            expression = f"np.full(n, {expression})"
        return [self._assigned(target, expression, made)]

    def _computed(self, kind: str, rest: list[str], sources: list[str], name: str) -> tuple[str, str]:
        """An expression, and its type."""
        if kind in ("mul", "mad") and rest[0] == "wide":
            wide = f"{name[0]}{2 * int(name[1:])}"
            product = " * ".join(f"{self._source(each, name)}.astype(t_{wide})" for each in sources[:2])
            return (product if kind == "mul" else f"{product} + {self._source(sources[2], wide)}"), wide
        if kind == "selp":
            a, b = (self._source(each, name) for each in sources[:2])
            return f"np.where({_local(sources[2])}, {a}, {b})", name
        if kind in ("shl", "shr"):
            by = self._source(sources[1], "u32") if sources[1][0] == "%" else str(self._literal(sources[1]))
            return f"{_CALLED[kind]}({self._source(sources[0], name)}, {by})", name
        if kind == "prmt":
            a, b = (self._source(each, "u32") for each in sources[:2])
            by = self._source(sources[2], "u32") if sources[2][0] == "%" else str(self._literal(sources[2]))
            return f"permuted({a}, {b}, {by})", name
        if kind == "bfi":
            a, b = (self._source(each, name) for each in sources[:2])
            return f"inserted({a}, {b}, {self._literal(sources[2])}, {self._literal(sources[3])})", name
        if kind == "setp":
            (compared,) = rest[:-1]  # with no other predicate
            a, b = (self._source(each, name) for each in sources)
            if compared == "ne" and TYPES[name].kind == "f":
                return f"({a} < {b}) | ({a} > {b})", "pred"
            unsigned = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
            return _COMPARED[unsigned.get(compared, compared)].format(a, b), "pred"
        values = [self._source(each, name) for each in sources]
        return self._plain(kind, rest, values, name, sources), name

    def _plain(self, kind: str, rest: list[str], values: list[str], name: str, sources: list[str]) -> str:
        """An expression with operands and result of one type."""
        if kind == "mov":
            return f"{values[0]}.copy()" if sources[0].startswith("%") else values[0]
        if kind == "cvta":
            if rest[:2] == ["to", "global"]:
                return f"{values[0]}.copy()"
            assert rest == ["shared", "u64"], rest
            return f"{values[0]} + np.uint64({self._addresses['shared']})"
        if kind in _ARITHMETIC and (kind != "mul" or rest[0] in ("lo", "rn")):
            return _ARITHMETIC[kind].format(*values)
        if kind == "mul" and rest[0] == "hi":
            return f"high({', '.join(values)})"
        if kind == "mad" and rest[0] == "lo":
            return "{} * {} + {}".format(*values)
        if kind == "fma" and name == "f32":
            return f"fused({', '.join(values)})"
        if kind in ("div", "rem"):
            return "{} / {}".format(*values) if name[0] == "f" else f"{_CALLED[kind]}({', '.join(values)})"
        if kind == "rcp":
            return f"t_{name}.type(1) / {values[0]}"
        if kind in ("min", "max") and name[0] != "f":
            return f"np.{kind}imum({', '.join(values)})"
        if kind in _BITS:
            assert rest[:-1] == {"bfind": ["shiftamt"], "shf": ["l", "wrap"]}.get(kind, []), rest
            return f"{_BITS[kind]}({', '.join(values)})"
        if kind in _BITWISE:
            return _BITWISE[kind].format(*values)
        return {"not": "~{}", "neg": "-{}", "abs": "np.abs({})"}[kind].format(values[0])

    def _packed(self, target: str, source: str, name: str) -> list[str]:
        """Pack registers into a wider one, the lowest part first, or unpack one."""
        parts = [each.strip() for each in (target + source).split("{")[1].split("}")[0].split(",")]
        bits = int(name[1:]) // len(parts)
        if source.startswith("{"):
            shifted = [
                f"{self._source(each, f'u{bits}')}.astype(t_{name}) << t_{name}.type({k * bits})"
                for k, each in enumerate(parts)
            ]
            return [self._assigned(target, " | ".join(f"({each})" for each in shifted), name)]
        whole = self._source(source, name)
        return [
            self._assigned(each, f"({whole} >> t_{name}.type({k * bits})).astype(t_u{bits})", f"u{bits}")
            for k, each in enumerate(parts)
            if each != "_"
        ]

    def _converted(self, instruction: Instruction) -> str:
        _, *rest = instruction.parts
        target, *sources = instruction.operands
        if rest[0] == "pack":
            assert rest == ["pack", "sat", "u8", "s32", "b32"], rest
            a, b = (self._source(each, "s32") for each in sources[:2])
            c = self._source(sources[2], "u32")
            whole = f"saturated({b}) | saturated({a}) << np.uint32(8) | {c} << np.uint32(16)"
            return self._assigned(target, f"np.full(n, {whole})", "u32")
        *how, made, name = rest
        value = self._source(sources[0], name)
        to, of = TYPES[made].kind, TYPES[name].kind
        if of == "f" and to == "f":
            if how == ["rn"] or not how:
                return self._assigned(target, f"{value}.astype(t_{made})", made)
            return self._assigned(target, _ROUNDED[how[0]].format(value), made)
        if of == "f":
            return self._assigned(target, f"to_integer({_ROUNDED[how[0]].format(value)}, t_{made})", made)
        assert how == (["rn"] if to == "f" else []), how
        return self._assigned(target, f"{value}.astype(t_{made})", made)

    def _memory(self, number: int, instruction: Instruction) -> list[str]:
        kind, *rest = instruction.parts
        name = rest[-1]
        space = next((each for each in ("global", "shared", "param") if each in rest), "generic")
        if kind == "ld" and space == "param":
            symbol = instruction.operands[1].strip("[]")
            return [self._assigned(instruction.operands[0], f"m.parameter({symbol!r})", name)]
        count = next((int(each[1:]) for each in rest if re.fullmatch(r"v[248]", each)), 1)
        if kind == "atom":
            target, place, value = instruction.operands
            where = f"{number}, {space!r}, {self._address(place)}"
            done = f"m.atomic({where}, t_{name}, {rest[-2]!r}, {self._source(value, name)})"
            return [self._assigned(target, done, name)]
        place, registers = instruction.operands[:: -1 if kind == "ld" else 1]
        where = f"{number}, {space!r}, {self._address(place)}"
        parts = [each.strip() for each in registers.strip("{}").split(",")]
        if kind == "st":
            return [f"m.store({where}, t_{name}, [{', '.join(self._source(each, name) for each in parts)}])"]
        lines = [f"got = m.load({where}, t_{name}, {count})"]
        return lines + [self._assigned(each, f"got[{k}]", name) for k, each in enumerate(parts)]

    def _address(self, operand: str) -> str:
        base, _, offset = operand.strip("[]").partition("+")
        more = int(offset or 0)
        if base[0] != "%":
            return self._constant(self._addresses[base] + more, "u64")
        wide = _local(base) if TYPES[self._kernel.type_of(base)].itemsize == 8 else f"{_local(base)}.astype(t_u64)"
        return f"{wide} + {self._constant(more, 'u64')}" if more else wide


def _local(register: str) -> str:
    return register[1:].replace("%", "_")
