"""``store`` in compiled code: what finds, copies and puts in the entries of many files, in the same memory.

Memory is uint64 [words]; addresses are in words, too. A key is a row of six: ``memory.Key``, and its hash.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types

from accel.codec.jpeg.memory import advanced, i64, pointer_to, u64
from accel.native.intrinsics import emitted

from . import store_fields as of


@emitted(types.boolean, None, types.uint64)
def _take(builder: ir.IRBuilder, word: Any, token: Any) -> Any:
    """Write to a word that is 0; False: it is not, and stays."""
    return builder.extract_value(builder.cmpxchg(word, ir.Constant(ir.IntType(64), 0), token, "seq_cst"), 1)


@njit
def find(words: Any, levels: Any, place: Any, keys: Any, k: int) -> Any:
    """Where an entry lies (0: nowhere), and the slot that says so, or may (0: none is left).

    ``levels``: of each table its first word, and how many windows it has. ``place``: where entries begin.
    """
    mark = i64(keys[k, of.HASH])
    tag = u64((mark >> 40) & 0xFFFFFF)
    for level in range(len(levels)):
        first = levels[level, 0] + of.WINDOW * (mark % levels[level, 1])
        for slot in range(first, first + of.WINDOW):
            word = words[slot]
            if word == 0:
                return i64(0), i64(slot)
            if word >> u64(40) == tag:
                at = i64(word & u64((1 << 40) - 1))
                if place <= at and at + of.HEAD <= len(words):
                    same = True
                    for i in range(of.HASH):
                        same &= words[at + i] == keys[k, i]
                    if same:
                        return at, i64(slot)
    return i64(0), i64(0)


@njit
def checksum(content: Any, first: int, count: int, mark: Any, tables: Any) -> Any:
    """``zlib.crc32`` of words, which begins with a key's hash; ``tables``: ``store_fields.crc_tables``."""
    low, table = u64(0xFF), pointer_to(tables)
    crc = ~mark & u64(0xFFFFFFFF)
    for i in range(first, first + count):
        word = content[i] ^ crc
        crc = u64(0)
        for byte in range(8):
            crc ^= u64(table[256 * (7 - byte) + i64((word >> u64(8 * byte)) & low)])
    return ~crc & u64(0xFFFFFFFF)


@njit
def get(words: Any, at: int, keys: Any, k: int, tables: Any, size: int, out: Any) -> Any:
    """Copy an entry of so many bytes, if it is sound; it is told how many it has: 0, it is not."""
    head = words[at + of.SIZE]
    found, start = i64(head & u64(0xFFFFFFFF)), at + of.HEAD
    if found == 0 or found > 8 * (len(words) - start):
        return 0
    if found != size:
        return found
    for i in range(size >> 3):
        out[i] = words[start + i]
    return size if checksum(out, 0, size >> 3, keys[k, of.HASH], tables) == head >> u64(32) else 0


@njit
def put(
    words: Any, levels: Any, places: Any, own: Any, at: int, slot: int, keys: Any, k: int, tables: Any, size: int,
    content: Any,
) -> bool:  # fmt: skip
    """Keep so many bytes as an entry, in place of the one that was found; False where there is no room.

    ``places``: see ``_claim``. ``own``: of this thread, see ``store_fields``.
    """
    if at == 0 and slot != 0 and words[slot] != 0:  # a file's came there meanwhile, perhaps this one's
        at, slot = find(words, levels, places[of.DATA], keys, k)
    is_new = at == 0 or i64(words[at + of.SIZE] & u64(0xFFFFFFFF)) != size
    is_new |= at + of.HEAD + (size >> 3) > len(words)
    if is_new:
        at = _room(words, places, own, of.HEAD + (size >> 3)) if slot != 0 else i64(0)
        if at == 0:
            return False
    for i in range(size >> 3):
        words[at + of.HEAD + i] = content[i]
    for i in range(of.HASH):
        words[at + i] = keys[k, i]
    words[at + of.SIZE] = u64(size) | checksum(content, 0, size >> 3, keys[k, of.HASH], tables) << u64(32)
    if is_new:
        words[slot] = u64((i64(keys[k, of.HASH]) >> 40) & 0xFFFFFF) << u64(40) | u64(at)
    return True


@njit
def _room(words: Any, places: Any, own: Any, count: int) -> Any:
    """The address of so many words in a segment of this thread's own; 0: none are left."""
    if words[i64(own[of.OWNER])] != own[of.TOKEN]:  # another took the segment at the same time
        own[of.AT] = own[of.END] = u64(0)
    if i64(own[of.AT]) + 8 * count > i64(own[of.END]):
        _claim(words, places, own, -(-8 * count // of.SEGMENT))
        if i64(own[of.AT]) + 8 * count > i64(own[of.END]):
            return i64(0)
    at = i64(own[of.AT])
    own[of.AT] = u64(at + 8 * count)
    return at >> 3


@njit
def _claim(words: Any, places: Any, own: Any, count: int) -> None:
    """Take so many segments side by side for this thread.

    ``places``: where segments' owners are, how many there are of them, and where they begin.
    """
    owners, first = pointer_to(words), i64(words[0])
    while 0 <= first <= places[of.SEGMENTS] - count:  # whatever stands in memory that all can write
        taken = 0
        while taken < count and _take(advanced(owners, places[of.OWNERS] + first + taken), own[of.TOKEN]):
            taken += 1
        if taken == count:
            words[0] = u64(first + count)
            start = 8 * places[of.DATA] + first * of.SEGMENT
            if start != i64(own[of.END]):
                own[of.AT] = u64(start)
            own[of.END], own[of.OWNER] = u64(start + count * of.SEGMENT), u64(places[of.OWNERS] + first + count - 1)
            return
        first += taken + 1
    own[of.AT] = own[of.END] = u64(0)
