"""Memory in compiled code: what numba has only with its own run-time library, or not at all."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


@intrinsic
def flattened(typing: Any, array: Any) -> Any:
    """A C-contiguous array's items in one dimension: ``array.reshape(-1)``."""
    made = types.Array(array.dtype, 1, "C", readonly=not array.mutable)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source, target = (
            context.make_array(array)(context, builder, values[0]),
            context.make_array(made)(context, builder),
        )
        populate_array(
            target,
            data=source.data,
            shape=[source.nitems],
            strides=[source.itemsize],
            itemsize=source.itemsize,
            meminfo=source.meminfo,
        )
        value = target._getvalue()
        context.nrt.incref(builder, made, value)
        return value

    return made(array), generate


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """The address as a pointer for ``numba.carray``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate
