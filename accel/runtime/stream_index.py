"""Stream indexes of files: where things are in them, noted as they are decoded, and kept for the next epoch.

What an index knows changes no pixel: the decoder takes from one only what fits all bytes of the file. So the key that
it is found by (``accel.system.file_key``) need not be beyond doubt.
"""

from __future__ import annotations

import threading

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
