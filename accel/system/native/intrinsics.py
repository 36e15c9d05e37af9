"""Making intrinsics, functions for numba's code that emit LLVM's instructions, and parts of such functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from llvmlite import ir
from numba.core import cgutils, codegen, config
from numba.extending import intrinsic

FEATURES = (codegen.get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES).split(",")
"""LLVM's names of the features of the processor that is compiled for: "+avx2", or "-avx2" if it lacks one."""


def emitted(result: Any, *kinds: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of a function (LLVM's builder, values) that emits instructions.

    Args:
        result: numba's type of the result; ``void``: none.
        kinds: the types of the values; None: the type that is given.
    """

    def made(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if value is None else value

        @wraps(emit)
        def typed(typing_context: Any, *given: Any) -> Any:
            return result(*(kind or each for kind, each in zip(kinds, given, strict=True))), generate

        return intrinsic(typed)

    return made


def lanes_of(lanes: list[int]) -> ir.Constant:
    """The mask of a ``shuffle_vector``: the input lane for each lane of the result."""
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)


def load(builder: Any, address: Any, kind: ir.Type) -> Any:
    """Emit an unaligned load of an LLVM type from an int64 address."""
    load = builder.load(builder.inttoptr(address, kind.as_pointer()))
    load.align = 1
    return load


def store(builder: Any, value: Any, address: Any) -> None:
    """Emit an unaligned store to an int64 address."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def splat(builder: Any, value: Any, count: int) -> Any:
    """Emit a vector of so many lanes with the same value."""
    kind = ir.VectorType(value.type, count)
    lane = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(lane, lane, lanes_of([0] * count))


def called(builder: Any, name: str, result: Any, *kinds: Any) -> Any:
    """An intrinsic function of LLVM's, by name: an instruction of one kind of processors."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kinds), name)
