"""What a thread holds of a picture's stream index (index_fields.py) while it decodes: bytes that others keep."""

from __future__ import annotations

import numpy as np

_MOST = 1 << 22  # bytes: of what is longer nothing is taken


class Index:
    """The index of one picture after the other.

    ``clear`` it, or fill its ``room`` with the bytes of an earlier decode; then ``decode(..., index=index)``; then, if
    it has ``grown``, keep a copy of its ``bytes``.  Bytes of another file, or damaged ones, change no pixel; forged
    ones, with the right digest and checksum, may.

    Attributes:
        used: the last decode began at its points.
        grown: there are more of them since.
        dropped: the bytes were not of this file, or damaged, and nothing of them was used.
    """

    def __init__(self) -> None:
        self._words = np.zeros(1 << 11, np.uint16)
        self.size = 0
        self.used = self.grown = self.dropped = False

    @property
    def bytes(self) -> np.ndarray:
        """uint8[n], a view of memory that the next picture takes; empty where nothing is known."""
        return self._words.view(np.uint8)[: self.size]

    def clear(self) -> None:
        """Know nothing."""
        self.size = 0
        self.used = self.grown = self.dropped = False

    def room(self, size: int) -> np.ndarray:
        """uint8[size], to be filled with the bytes that were kept; less where there cannot be so many."""
        self.clear()
        self.size = size if 0 <= size <= _MOST and size % 8 == 0 else 0
        self._grow()
        return self.bytes

    def begin(self) -> None:
        """Say nothing yet of the decode that follows."""
        self.used = self.grown = self.dropped = False

    def of(self, size: int) -> np.ndarray:
        """The words of an index that takes ``size`` bytes: those that are there if they are as many, or zeros."""
        self.begin()
        self.dropped = self.size not in (0, size)
        if self.size != size:
            self.size = size
            self._grow()
            self._words[: size // 2] = 0
        return self._words[: size // 2]

    def said(self, used: bool, grown: bool, dropped: bool) -> None:
        """Take down what a decode says of it."""
        self.used, self.grown, self.dropped = used, grown, self.dropped or dropped

    def _grow(self) -> None:
        if self.size > self._words.nbytes:
            self._words = np.zeros(self.size, np.uint16)
