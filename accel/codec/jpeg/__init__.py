"""A CPU JPEG decoder whose pixels equal libjpeg-turbo's, and which decodes only the region asked for."""

from __future__ import annotations

import threading

import numpy as np

from . import header as hd
from .layout import LAYOUT_SIZE, lay_out
from .header import parse
from .scan import decode_scan, ORDER
from .stream import SLACK
from .tables import new_tables

from numba import njit

__all__ = ["decode"]

@njit(nogil=True, cache=True, error_model="numpy")
def prepare(data, header, layout, top, left, height, width):
    if not parse(data, header):
        return 0
    if height < 0:
        height, width = header[hd.HEIGHT], header[hd.WIDTH]
    if top < 0 or left < 0 or height < 1 or width < 1 or top + height > header[hd.HEIGHT] or left + width > header[hd.WIDTH]:
        return 0
    return lay_out(header, top, left, height, width, layout)


class _Scratch(threading.local):
    """Working memory of one thread, kept from picture to picture."""

    def __init__(self) -> None:
        self.header = np.empty(hd.HEADER_SIZE, np.int64)
        self.layout = np.empty((3, LAYOUT_SIZE), np.int64)
        self.tables = new_tables()
        self.stream = np.empty(1 << 18, np.uint8)
        self.ends = np.empty(1, np.int64)
        self.planes = np.empty(1 << 20, np.uint8)


_scratch = _Scratch()


def decode(data, box=None, *, channels=None, out=None):
    scratch = _scratch
    source = np.frombuffer(data, np.uint8)
    source.flags.writeable = False
    header = scratch.header
    top, left, height, width = (0, 0, -1, -1) if box is None else box
    size = prepare(source, header, scratch.layout, top, left, height, width)
    if size == 0:
        return None
    if box is None:
        height, width = int(header[hd.HEIGHT]), int(header[hd.WIDTH])
    own = int(header[hd.COMPONENTS])
    if channels is None:
        channels = own
    if len(source) + SLACK > len(scratch.stream):
        scratch.stream = np.empty(2 * len(source) + SLACK, np.uint8)
    if size > len(scratch.planes):
        scratch.planes = np.empty(2*size, np.uint8)
    result = np.empty((height, width, channels), np.uint8)
    if len(scratch.ends) < 10000:
        scratch.ends = np.empty(10000, np.int64)
    if decode_scan(source, header, scratch.layout, top, left, *scratch.tables, ORDER, scratch.stream, scratch.ends, scratch.planes, result):
        return result
    return None
