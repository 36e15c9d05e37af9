"""Choosing files for decoders that cannot tell broken JPEG files from intact ones."""

from __future__ import annotations

from accel.codec.decode import one_scan
from accel.codec.header import Header
from accel.recipes.recipe import Source


def plainly_intact(source: Source) -> bool:
    """Whether a source is a JPEG file that is complete and has nothing unusual, judging by its markers."""
    header = source.header
    return isinstance(header, Header) and header.ordinary and (header.progressive or one_scan(source.data, header))
