"""Stream indexes of files: where things are in them, noted as they are decoded, and kept for the next epoch.

What an index knows changes no pixel: the decoder takes from one only what fits all bytes of the file. So the key that
it is found by (``accel.system.file_key``) need not be beyond doubt.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from accel.codec.decode import decode
from accel.codec.engines import Box, Pixels
from accel.codec.header import Header
from accel.codec.jpeg import Index
from accel.options import Options
from accel.planning.plan import Decode
from accel.recipe import Source
from accel.system import counters, store

FULL = "the memory for stream indexes is full"


class _Thread(threading.local):
    """What a thread decodes with."""

    def __init__(self) -> None:
        self.index = Index()


_thread = _Thread()


def decoded(source: Source, box: Box, channels: int, engine: str, options: Options) -> Pixels:
    """``accel.codec.decode.decode`` of a source, with what is known of its file, to which it adds."""
    entries, key = store.current() if options.cache is not None else None, source.key
    header = source.header
    if entries is None or key is None or engine == "pillow" or not isinstance(header, Header) or header.progressive:
        return decode(source.data, header, box, channels, engine)
    index = _thread.index
    found = entries.find(key)
    if not entries.get(found, index.room):
        index.clear()
    pixels = decode(source.data, header, box, channels, engine, index)
    if index.used:
        counters.count(counters.INDEXED)
    elif index.dropped:
        counters.count(counters.MISFITS)
    if index.grown:
        if not entries.put(key, index.bytes, found):
            counters.fallback(FULL)
        elif not index.used and not index.dropped:
            counters.count(counters.INDEXES)
    return pixels


_EMPTY = np.zeros(0, np.uint8)
_full = False  # what is taken is never given back


def known(source: Source, options: Options) -> npt.NDArray[np.uint8] | None:
    """The bytes that are kept for a file's index, for a decoder of whole batches.

    Empty where there are none yet; None where none would be kept.
    """
    entries, key = store.current() if options.cache is not None else None, source.key
    if entries is None or key is None:
        return None
    found = _EMPTY

    def room(size: int) -> npt.NDArray[np.uint8]:
        nonlocal found
        found = np.empty(size, np.uint8)
        return found

    return found if entries.get(entries.find(key), room) else None if _full else _EMPTY


def keep(source: Source, index: npt.NDArray[np.uint8]) -> None:
    """Keep a file's index that such a decoder has made."""
    global _full
    entries, key = store.current(), source.key
    if entries is None or key is None:
        return
    if entries.put(key, index, entries.find(key)):
        counters.count(counters.INDEXES)
    else:
        _full = True
        counters.fallback(FULL)


def describe(decodes: Sequence[Decode], options: Options) -> str:
    """A line for ``accel.explain``: of how many files it is known where things are."""
    entries = store.current()
    if options.cache is None:
        return "stream index: none is kept (cache=None)"
    if entries is None:
        return "stream index: none is kept (no memory that processes share)"
    known = sum(wanted.source.key is not None and entries.find(wanted.source.key)[0] != 0 for wanted in decodes)
    used, size = entries.used()
    return f"stream index: kept of {known} of {len(decodes)} files, {used / 1e6:.1f} of {size / 1e6:.0f} MB used"
