"""Recipes in bytes: what one process records, another computes, without the files and without pickle.

    message = accel.wire.dumps((image, label))      # on a node with files: lazy images travel as files and steps
    images, labels = accel.wire.collate(messages)   # on a node with a GPU: one lazy batch

The format is described in ``docs/wire.md``. A message may come from strangers: everything in it is checked.
"""

from accel.errors import WireError
from accel.wire.reading import collate, loads
from accel.wire.writing import dumps

__all__ = ["WireError", "collate", "dumps", "loads"]
