"""``store`` in compiled code: finding, copying and writing entries in memory that others write at the same time.

Memory is uint64 [words]; addresses are in words, too. ``keys`` is uint64 [n, KEY], of which number ``k`` is meant.
``levels``: the first word and the number of windows of each table. ``places``: the number of segments, and where they
begin. Addresses read from this memory are checked before they are used.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import advanced, i64, pointer_to, take_numbers, take_place, u64

from . import store_fields as of

_ENTRY = u64((1 << 40) - 1)  # the bits of a slot with the place of its entry; above are bits of the key's hash


@njit
def _hash(keys: Any, k: int) -> Any:
    total = u64(0)
    for i in range(of.KEY):
        total = (total ^ keys[k, i]) * u64(0x9E3779B185EBCA87)
        total ^= total >> u64(32)
    return total


@njit
def _entry(words: Any, places: Any, word: Any, keys: Any, k: int) -> Any:
    """The place of a file's entry, if a slot's word refers to that; 0: it does not."""
    at = i64(word & _ENTRY)
    if (word ^ _hash(keys, k)) & ~_ENTRY or at < places[of.DATA] or at + of.HEAD > len(words):
        return i64(0)
    for i in range(of.KEY):
        if words[at + i] != keys[k, i]:
            return i64(0)
    return at


@njit
def _word(keys: Any, k: int, at: Any) -> Any:
    """The word in the slot of an entry at this place; 0 for place 0: the slot is empty."""
    return (_hash(keys, k) & ~_ENTRY) | u64(at) if at != 0 else u64(0)


@njit
def _find(words: Any, levels: Any, places: Any, keys: Any, k: int) -> Any:
    """The place of an entry (0: there is none), and the slot that refers to it or can (0: no slot is left)."""
    window = i64(_hash(keys, k) & _ENTRY)
    for level in range(len(levels)):
        first = levels[level, 0] + of.WINDOW * (window % levels[level, 1])
        for slot in range(first, first + of.WINDOW):
            word = words[slot]
            if word == 0:
                return i64(0), slot
            at = _entry(words, places, word, keys, k)
            if at != 0:
                return at, slot
    return i64(0), i64(0)


@njit
def _content(words: Any, levels: Any, places: Any, keys: Any, k: int) -> tuple[Any, Any]:
    """Where an entry's content begins, and its number of words; (0, 0): there is none."""
    at, _ = _find(words, levels, places, keys, k)
    if at == 0:
        return i64(0), i64(0)
    count, start = i64(words[at + of.SIZE]), at + of.HEAD
    if count < 0 or count > len(words) - start:
        return i64(0), i64(0)
    return start, count


@njit
def get(words: Any, levels: Any, places: Any, keys: Any, k: int, out: Any) -> Any:
    """Copy an entry's content if ``out`` has its number of words; return that number, 0: there is no entry."""
    start, count = _content(words, levels, places, keys, k)
    if count == len(out):
        for i in range(count):
            out[i] = words[start + i]
    return count


@njit
def get_all(words: Any, levels: Any, places: Any, keys: Any, chosen: Any, out: Any, ends: Any) -> Any:
    """Copy the entries of the files that are ``chosen`` for one after another, as many as ``out`` has room for.

    ``ends``: to be filled with the end of each; returns the end of the last, even if there is no room for all.
    """
    total = i64(0)
    for k in range(len(keys)):
        if chosen[k]:
            start, count = _content(words, levels, places, keys, k)
            if count <= of.MOST:
                if total + count <= len(out):
                    for i in range(count):
                        out[total + i] = words[start + i]
                total += count
        ends[k] = total
    return total


@njit
def put(words: Any, levels: Any, places: Any, own: Any, keys: Any, k: int, content: Any) -> int:
    """Write words as an entry; returns what became of it (``store_fields``). ``own``: this thread's segment."""
    at, slot = _find(words, levels, places, keys, k)
    if slot == 0:
        return of.CROWDED
    before = at
    is_new = before == 0 or i64(words[at + of.SIZE]) != len(content) or at + of.HEAD + len(content) > len(words)
    if is_new:
        at = _room(words, places, own, of.HEAD + len(content))
        if at == 0:
            return of.FULL
    for i in range(len(content)):
        words[at + of.HEAD + i] = content[i]
    for i in range(of.KEY):
        words[at + i] = keys[k, i]
    words[at + of.SIZE] = u64(len(content))
    if is_new:
        new = _word(keys, k, at)
        while take_place(advanced(pointer_to(words), slot), _word(keys, k, before), new) == 0:  # another was faster
            before, slot = _find(words, levels, places, keys, k)
            if slot == 0:
                return of.CROWDED
    return of.REPLACED if before != 0 else of.ADDED


@njit
def put_all(
    words: Any, levels: Any, places: Any, own: Any, keys: Any, chosen: Any, contents: Any, ends: Any, became: Any
) -> int:
    """Write the entries of the files that are ``chosen`` for; ``contents``: all one after another, with these ends."""
    begin = i64(0)
    for k in range(len(keys)):
        if chosen[k]:
            became[k] = put(words, levels, places, own, keys, k, contents[begin : ends[k]])
        begin = ends[k]
    return 0


@njit
def _room(words: Any, places: Any, own: Any, count: int) -> Any:
    """Take so many words in this thread's segment, or in a new one; return their place, 0: none are left."""
    if own[of.AT] + count > own[of.END]:
        segments = -(-count // of.SEGMENT)
        if not 0 <= i64(words[0]) <= places[of.SEGMENTS] - segments:
            return i64(0)
        first = take_numbers(pointer_to(words), segments)
        if not 0 <= first <= places[of.SEGMENTS] - segments:  # other threads took them
            return i64(0)
        start = places[of.DATA] + first * of.SEGMENT
        if start != own[of.END]:
            own[of.AT] = start
        own[of.END] = start + segments * of.SEGMENT
    at = own[of.AT]
    own[of.AT] = at + count
    return at
