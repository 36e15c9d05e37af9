"""Opening, reading and closing files by libc's functions, and parsing the headers of plain JPEG files, by numba.

The addresses of the functions, and of the memory to read into, are parameters: the caller keeps these alive.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import register_jitable

from accel.codec import header
from accel.system.native.intrinsics import emitted
from accel.system.native.memory import i64, pointer_to, u16

from . import fields as of

_INT, _WORD = ir.IntType(32), ir.IntType(64)
_HERE, _EMPTY_PATH, _BASIC, _TO_READ = -100, 0x1000, 0x7FF, 4  # AT_FDCWD, AT_EMPTY_PATH, STATX_BASIC_STATS, R_OK


def _called(builder: ir.IRBuilder, address: Any, result: ir.Type, *given: tuple[Any, ir.Type]) -> Any:
    """Call the C function at an address with int64 values cast to these types; return its result as int64."""
    kinds = [kind for _, kind in given]
    function = builder.inttoptr(address, ir.FunctionType(result, kinds).as_pointer())
    found = builder.call(function, [value if kind is _WORD else builder.trunc(value, kind) for value, kind in given])
    return found if result is _WORD else builder.sext(found, _WORD)


_int64 = types.int64
for _rule in (header.begins, header.frame, header.harmless, header.photoshop_parses):
    register_jitable(_rule)


@emitted(_int64, _int64, _int64, _int64)
def _open(builder: ir.IRBuilder, call: Any, path: Any, flags: Any) -> Any:
    return _called(builder, call, _INT, (path, _WORD), (flags, _INT))


@emitted(_int64, _int64, _int64, _int64, _int64, _int64)
def _status(builder: ir.IRBuilder, call: Any, descriptor: Any, path: Any, options: Any, status: Any) -> Any:
    fields = ir.Constant(_WORD, _BASIC)
    given = ((descriptor, _INT), (path, _WORD), (options, _INT), (fields, _INT), (status, _WORD))
    return _called(builder, call, _INT, *given)


@emitted(_int64, _int64, _int64, _int64, _int64, _int64)
def _pread(builder: ir.IRBuilder, call: Any, descriptor: Any, place: Any, room: Any, begin: Any) -> Any:
    return _called(builder, call, _WORD, (descriptor, _INT), (place, _WORD), (room, _WORD), (begin, _WORD))


@emitted(_int64, _int64, _int64)
def _access(builder: ir.IRBuilder, call: Any, path: Any) -> Any:
    return _called(builder, call, _INT, (path, _WORD), (ir.Constant(_WORD, _TO_READ), _INT))


@emitted(_int64, _int64, _int64)
def _close(builder: ir.IRBuilder, call: Any, descriptor: Any) -> Any:
    return _called(builder, call, _INT, (descriptor, _INT))


@emitted(types.CPointer(types.uint8), types.int64)
def _bytes(builder: ir.IRBuilder, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(8).as_pointer())


@emitted(types.int64, None)
def _address(builder: ir.IRBuilder, pointer: Any) -> Any:
    return builder.ptrtoint(pointer, _WORD)


@njit
def read(
    calls: Any,
    names: Any,
    address: int,
    capacity: int,
    oldest: int,
    most: int,
    status: Any,
    rows: Any,
    places: Any,
    totals: Any,
) -> Any:
    """Read files to an address with so much capacity, one behind another, at multiples of ``ALIGNED``.

    Args:
        calls: the addresses of open, statx, pread and close, and the flags of open (``fields``).
        names: the files' names one after another, each ending with a 0.
        oldest: the latest time, in nanoseconds, that is trusted; others become -1.
        most: the most pixels of a picture that is not counted as ``UNUSUAL``.
        status: int64 [32], working memory. rows: int64 [files, FIELDS], each file's fields; before, a member of a pack
            has its shard's descriptor as ``STATE``, its offset as ``READ`` and its size as ``BYTES``, and any other
            file -1 as ``STATE``.
        places: int64 [files, 2], each file's offset and size.
        totals: int64 [TOTALS], numbers for all files.
    """
    begin, end = i64(0), i64(0)
    totals[:] = 0
    for i in range(len(rows)):
        name_end = _end(names, begin)
        state = _file(calls, names, begin, name_end, address + end, capacity - end, status, rows, i)
        rows[i, of.STATE] = state
        begin = name_end + 1
        if not _is_believed(rows, i, oldest):
            rows[i, of.WRITTEN], rows[i, of.CHANGED] = -1, -1
        places[i, 0], places[i, 1] = end, rows[i, of.READ]
        if state >= of.OTHER:
            end += _whole(rows[i, of.READ])
        totals[of.MISSING] += state == of.NONE
        totals[of.NO_ROOM] += state == of.LARGE
        totals[of.LARGEST] = max(totals[of.LARGEST], rows[i, of.BYTES])
        totals[of.NEEDED] += _whole(rows[i, of.BYTES])
        totals[of.UNUSUAL] += state == of.OTHER or rows[i, of.HEIGHT] * rows[i, of.WIDTH] > most


@njit
def look(calls: Any, names: Any, oldest: int, status: Any, rows: Any) -> Any:
    """Fill a row for each file without opening it: the key, and as state ``PLAIN`` if the key is trusted and the file
    may be read, else ``NONE``.

    ``calls``: the addresses of statx and access. The other arguments are those of ``read``.
    """
    begin, name = i64(0), _address(pointer_to(names))
    for i in range(len(rows)):
        end, (descriptor, offset, size) = _end(names, begin), _member(rows, i)
        member, rows[i, of.STATE] = descriptor >= 0, of.NONE
        if member:
            found = _status(calls[of.STATX], descriptor, name + end, _EMPTY_PATH, _address(pointer_to(status)))
        else:
            found = _status(calls[of.STATX], _HERE, name + begin, 0, _address(pointer_to(status)))
        if found == 0:
            _key(status, rows, i)
            if member:
                _key_of_member(rows, i, offset, size)
            if _is_believed(rows, i, oldest) and (member or _access(calls[of.ACCESS], name + begin) == 0):
                rows[i, of.STATE] = of.PLAIN
        begin = end + 1


@njit
def _member(rows: Any, i: int) -> Any:
    """Take what is known of a member of a pack from its row: its shard's descriptor, offset and size; -1, 0, 0 for
    other files."""
    descriptor, offset, size = rows[i, of.STATE], rows[i, of.READ], rows[i, of.BYTES]
    rows[i, :] = 0
    return (descriptor, offset, size) if descriptor >= 0 else (i64(-1), i64(0), i64(0))


@njit
def _is_believed(rows: Any, i: int, oldest: int) -> Any:
    """Whether a file's times are so old that it cannot change again without changing them."""
    return 0 <= rows[i, of.WRITTEN] <= rows[i, of.CHANGED] <= oldest


@njit
def _whole(size: int) -> Any:
    return (size + of.ALIGNED - 1) // of.ALIGNED * of.ALIGNED


@njit
def _end(names: Any, begin: int) -> Any:
    name, end = pointer_to(names), begin
    while end < len(names) and name[end] != 0:
        end += 1
    return end


@njit
def _file(
    calls: Any, names: Any, begin: int, end: int, address: int, capacity: int, status: Any, rows: Any, i: int
) -> int:
    """Read the file with the name names[begin:end] to an address with so much capacity; return its state."""
    name, state = _address(pointer_to(names)), of.NONE
    shard, offset, size = _member(rows, i)
    descriptor = shard if shard >= 0 else _open(calls[of.OPEN], name + begin, calls[of.FLAGS])
    if descriptor >= 0:
        if _status(calls[of.STATX], descriptor, name + end, _EMPTY_PATH, _address(pointer_to(status))) == 0:
            _key(status, rows, i)
            if shard >= 0:
                _key_of_member(rows, i, offset, size)
            state = of.LARGE
            if rows[i, of.BYTES] < capacity:
                room = size if shard >= 0 else capacity  # a file may have grown
                state = _content(calls, descriptor, address, room, offset, rows, i)
                state = of.LARGE if rows[i, of.READ] >= capacity else state
        if shard < 0:
            _close(calls[of.CLOSE], descriptor)
    return state


_BILLION, _LOW = 1000000000, 0xFFFFFFFF
_BLOCK = 512  # of a tar file


@njit
def _key(status: Any, rows: Any, i: int) -> None:
    """Fill the fields of a ``memory.Key`` from the system's struct statx."""
    major, minor = status[17] & _LOW, (status[17] >> 32) & _LOW
    device = (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xFFFFFF00) << 12 | (major & 0xFFFFF000) << 32
    rows[i, of.DEVICE], rows[i, of.INODE], rows[i, of.BYTES] = device, status[4], status[5]
    rows[i, of.WRITTEN] = status[14] * _BILLION + (status[15] & _LOW)
    rows[i, of.CHANGED] = status[12] * _BILLION + (status[13] & _LOW)


@njit
def _key_of_member(rows: Any, i: int, offset: int, size: int) -> None:
    """Make the key of a shard that of its member: the same as ``packs.key_of_member``."""
    rows[i, of.BYTES] = size
    if rows[i, of.DEVICE] >> 32 != 0 or offset % _BLOCK != 0 or offset >> 40 != 0:
        rows[i, of.WRITTEN] = -1
    rows[i, of.DEVICE] |= (offset // _BLOCK + 1) << 32


@njit
def _content(calls: Any, descriptor: int, address: int, room: int, begin: int, rows: Any, i: int) -> Any:
    """Read at most ``room`` bytes of a file from ``begin`` on; return its state, unless it does not fit."""
    size = _pread(calls[of.PREAD], descriptor, address, room, begin)
    rows[i, of.READ] = size
    if size < 0:
        return of.NONE
    if size < rows[i, of.BYTES]:  # some file systems return less than they have
        return of.LARGE
    return of.PLAIN if _plain(_bytes(address), size, rows, i) else of.OTHER


@njit
def _plain(data: Any, size: int, rows: Any, i: int) -> bool:
    """Whether this is a complete, sequential JPEG file with one picture, as far as its header says; fills its fields.

    The same as ``header.claim`` decides, which must be asked about all other files.
    """
    if size < 4 or data[0] != 0xFF or data[1] != 0xD8 or data[size - 2] != 0xFF or data[size - 1] != 0xD9:
        return False
    position, end, components = 2, size - 1, 0
    while position + 3 < end:
        marker, length = i64(data[position + 1]), u16(data, position + 2) - 2
        at, following = position + 4, position + 4 + length
        if data[position] != 0xFF or length < 0 or following > end:
            return False
        if marker == 0xDA:
            if components == 0 or data[at] > components:
                return False
            rows[i, of.SCAN], rows[i, of.COMPONENTS] = position, components
            return True
        if marker in (0xC0, 0xC1) and components == 0:
            components, rows[i, of.HEIGHT], rows[i, of.WIDTH] = header.frame(data, at, length)
            if components == 0:
                return False
        elif not header.harmless(data, marker, at, length) or (
            marker == 0xE2 and header.begins(data, at, following, header.MPF)
        ):
            return False
        position = following
    return False
