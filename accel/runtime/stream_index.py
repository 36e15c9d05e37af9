"""Stream indexes of files: where things are in them, noted as they are decoded, and kept for the next epoch.

What an index knows changes no pixel: the decoder takes from one only what fits all bytes of the file. So the key that
it is found by (``accel.system.file_key``) need not be beyond doubt.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from accel.codec.decode import decode
from accel.codec.engines import Box, Pixels
from accel.codec.jpeg import Index
from accel.options import Options
from accel.recipe import Source
from accel.system import counters, store


class _Thread(threading.local):
    """What a thread decodes with."""

    def __init__(self) -> None:
        self.index = Index()


_thread = _Thread()


def decoded(source: Source, box: Box, channels: int, engine: str, options: Options) -> Pixels:
    """``accel.codec.decode.decode`` of a source, with what is known of its file, to which it adds."""
    entries = store.current() if options.cache is not None else None
    if entries is None or source.key is None or engine == "pillow" or source.header.progressive:
        return decode(source.data, source.header, box, channels, engine)
    index = _thread.index
    if not entries.get(source.key, index.room):
        index.clear()
    pixels = decode(source.data, source.header, box, channels, engine, index)
    if index.grown:
        entries.put(source.key, index.bytes)
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

    return found if entries.get(key, room) else None if _full else _EMPTY


def keep(source: Source, index: npt.NDArray[np.uint8]) -> None:
    """Keep a file's index that such a decoder has made."""
    global _full
    entries, key = store.current(), source.key
    if entries is None or key is None:
        return
    if entries.put(key, index):
        counters.count(counters.INDEXES)
    else:
        _full = True
        counters.fallback("the memory for stream indexes is full")
