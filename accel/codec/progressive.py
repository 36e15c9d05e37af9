"""Progressive JPEG files: whether their scans reach the end marker, and make a whole picture.

Source: ITU T.81 annex G. A file may end early with some scans missing; libjpeg then shows the picture so far, smoothed,
and other decoders smooth differently.
"""

from __future__ import annotations

import re

_SOS, _EOI = 0xDA, 0xD9
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # no stuffed byte, no restart; any byte may follow in a scan


def survey(data: bytes | bytearray, position: int, size: int, components: bytes | bytearray) -> tuple[bool, bool]:
    """Follow the scans from the SOS marker at ``position`` on, segment by segment.

    Tables stand between the scans, and their bytes may look like an end.

    Args:
        data: the file, in the first ``size`` bytes. components: their ids, as the frame header lists them.

    Returns:
        Whether there is an EOI marker, and whether every coefficient of every component is complete to its last bit.
    """
    missing = {component: [True] * 64 for component in components}
    if len(missing) < len(components):  # libjpeg gives an equal id another number: a scan of one is not of the other
        missing[-1] = [True] * 64
    while position + 1 < size:
        marker = data[position + 1]
        if marker == _EOI:
            return True, not any(map(any, missing.values()))
        if marker == 0xFF:
            position += 1
        elif marker == 0 or 0xD0 <= marker <= 0xD7:  # a stuffed byte, a restart marker
            position += 2
        elif position + 4 > size:
            break
        else:
            length = (data[position + 2] << 8) | data[position + 3]
            if marker == _SOS:
                _note(data[position + 4 : position + 2 + length], missing)
            position += 2 + length
        found = _MARKER.search(data, position, size)
        if found is None:
            break
        position = found.start()
    return False, False


def _note(scan: bytes | bytearray, missing: dict[int, list[bool]]) -> None:
    """Note which coefficients a scan leaves without their last bit; the last scan that has them decides."""
    count = scan[0] if scan else 0
    if len(scan) != 4 + 2 * count:
        return
    first, last, approximation = scan[-3:]
    for component in scan[1 : 1 + 2 * count : 2]:
        if component in missing and first <= last <= 63:
            missing[component][first : last + 1] = [approximation & 15 > 0] * (last + 1 - first)
