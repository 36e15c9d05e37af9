"""Which pictures an op is tried on, and in which order: the same ones every time, of all kinds from the first on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PIL import Image, JpegImagePlugin

_LOOKED_AT = 2000
"""The most files whose headers are read to tell their kinds apart."""


def kinds(files: Sequence[str]) -> list[list[int]]:
    """The places of files by what may make a difference to a decoder or an op: format, mode, subsampling, size."""
    groups: dict[object, list[int]] = {}
    for place, file in enumerate(files):
        groups.setdefault(_kind(file) if place < _LOOKED_AT else None, []).append(place)
    return list(groups.values())


def _kind(file: str) -> object:
    try:
        with Image.open(file) as image:
            pixels = image.width * image.height
            is_jpeg = isinstance(image, JpegImagePlugin.JpegImageFile)
            sampling = JpegImagePlugin.get_sampling(image) if is_jpeg else None
            return image.format, image.mode, sampling, "progressive" in image.info, pixels.bit_length() // 2
    except Exception as error:  # of any type: files may be damaged in any way
        return type(error)


def pictures(groups: Sequence[Sequence[int]], op: int, ops: int) -> Iterator[int]:
    """Yield all places for op number ``op`` of ``ops``: one of each kind in turn, beginning elsewhere for each op."""
    first = op % len(groups)
    turned = [*groups[first:], *groups[:first]]
    for turn in range(max(map(len, groups))):
        for group in turned:
            if turn < len(group):
                yield group[(turn + op * len(group) // ops) % len(group)]


def sample(attempt: int, samples: int) -> int:
    """Which of an op's parameters its attempt tries: each once in as many attempts, each time with other kinds."""
    return (attempt + attempt // samples + attempt // samples**2) % samples
