"""The layout of a call's words and of an array object (``calls``, ``call_kernels``)."""

HEAD = object.__basicsize__
"""Bytes of an array object before its own fields: address of the items, dimensions, address of the sizes, ..."""

FIRST = 2
"""The word of the first parameter."""
