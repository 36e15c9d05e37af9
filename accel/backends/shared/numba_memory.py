"""Memory operations for compiled code that numba has only with its own run-time library, or not at all."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from accel.system.native.intrinsics import emitted


@intrinsic
def flattened(typing: Any, array: Any) -> Any:
    """A C-contiguous array's items in one dimension: ``array.reshape(-1)``."""
    made = types.Array(array.dtype, 1, "C", readonly=not array.mutable)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        source = context.make_array(array)(context, builder, values[0])
        target = context.make_array(made)(context, builder)
        given = {"data": source.data, "itemsize": source.itemsize, "meminfo": source.meminfo}
        populate_array(target, shape=[source.nitems], strides=[source.itemsize], **given)
        value = target._getvalue()
        context.nrt.incref(builder, made, value)
        return value

    return made(array), generate


@emitted(types.voidptr, types.int64)
def pointer(builder: Any, address: Any) -> Any:
    """An address as a pointer for ``numba.carray``."""
    return builder.inttoptr(address, ir.IntType(8).as_pointer())
