"""A thread's copy of a picture's stream index (index_fields.py) while it decodes; other code keeps its bytes."""

from __future__ import annotations

import numpy as np

_MOST = 1 << 22  # bytes: longer ones are not taken


class Index:
    """The index of one picture after another.

    ``clear`` it, or fill its ``room`` with the bytes of an earlier decode; then ``decode(..., index=index)``; then, if
    it has ``grown``, keep a copy of its ``bytes``.  Bytes of another file, or damaged ones, change no pixel; forged
    ones, with the right digest and checksum, may.

    Attributes:
        used: the last decode began at its points.
        grown: the last decode added points.
        dropped: the bytes were another file's, or damaged, and were not used.
    """

    def __init__(self) -> None:
        self._words = np.zeros(1 << 11, np.uint16)
        self.size = 0
        self.used = self.grown = self.dropped = False

    @property
    def bytes(self) -> np.ndarray:
        """The index as uint8[n], a view of memory that the next picture overwrites; empty if it has no points."""
        return self._words.view(np.uint8)[: self.size]

    def clear(self) -> None:
        self.size = 0
        self.used = self.grown = self.dropped = False

    def room(self, size: int) -> np.ndarray:
        """Memory, uint8[size], to be filled with the bytes that were kept; empty if no index has this size."""
        self.clear()
        self.size = size if 0 <= size <= _MOST and size % 8 == 0 else 0
        self._grow()
        return self.bytes

    def begin(self) -> None:
        """Reset the attributes before a decode."""
        self.used = self.grown = self.dropped = False

    def of(self, size: int) -> np.ndarray:
        """The words, uint16[size / 2], for a file whose index takes ``size`` bytes: the present ones if they are as
        many, else zeros."""
        self.begin()
        self.dropped = self.size not in (0, size)
        if self.size != size:
            self.size = size
            self._grow()
            self._words[: size // 2] = 0
        return self._words[: size // 2]

    def set(self, used: bool, grown: bool, dropped: bool) -> None:
        self.used, self.grown, self.dropped = used, grown, self.dropped or dropped

    def _grow(self) -> None:
        if self.size > self._words.nbytes:
            self._words = np.zeros(self.size, np.uint16)
