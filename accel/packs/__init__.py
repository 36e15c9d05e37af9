"""Packs: a dataset in a few tar shards and an index, which accel, WebDataset, DALI and ``tar`` read.

``ImageFolder(folder)`` reads a pack while a backend is in force, ``PackDataset`` always.
"""

from io import BytesIO as _BytesIO

from accel.codec.files.packs import opened as _opened
from accel.errors import PackError


def open(path: object) -> _BytesIO:
    """Open a file of a pack for reading, as ``open(path, "rb")`` does for the tree that was packed.

    Args:
        path: the pack's folder, and the path below it, as ``ImageFolder.samples`` has it.

    Returns:
        A file object of the bytes, whose ``name`` is the path.

    Raises:
        FileNotFoundError: it is not in a pack.
        PackError: the pack cannot be used; the message names the file and the reason.
    """
    file = _opened(path)
    if file is None:
        raise FileNotFoundError(2, "No such file in a pack", str(path))
    return file


__all__ = ["PackError", "open"]
