"""What is where in a call's words, and in an array's object (``calls``, ``call_kernels``)."""

HEAD = object.__basicsize__
"""Bytes of an array's object before its own: its address of items, dimensions, address of sizes, and so on."""

FIRST = 2
"""The word of the first parameter."""
