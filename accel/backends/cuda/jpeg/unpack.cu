// Planes that a cache keeps (accel/codec/jpeg/planes_fields.py has their form), from the parts that a region needs: a
// picture whose file is not decoded enters here, and goes on to jpeg_pixels.
//
// The host has compared the parts' checksums. Even so no size or place in them is followed that is not inside them.

#include "jpeg/picture.h"

constexpr int SLACK = 8;                           // bytes behind a part's blocks
constexpr int WIDTHS = 9;                          // 0 to 8 bits
constexpr int STEEP = WIDTHS;                      // the first code of a steep block
constexpr int CODES = STEEP + WIDTHS * WIDTHS;     // there are no others

// How a block is packed: bits of a number in its first row and in the others, and whether these are differences.
struct Form {
    int first, other;
    bool steep;

    MEMBER explicit Form(int code)
        : first(code < STEEP ? code : (code - STEEP) / WIDTHS), other(code < STEEP ? code : (code - STEEP) % WIDTHS),
          steep(code >= STEEP) {}

    MEMBER int size() const { return first + 7 * other; }
};

FUNCTION const u8* bytes_of(const Picture& picture) { return reinterpret_cast<const u8*>(picture.file); }

FUNCTION u32 word_of(const Picture& picture, int at) {
    const u8* bytes = bytes_of(picture) + at;
    return read(bytes) | read(bytes + 1) << 8 | read(bytes + 2) << 16 | static_cast<u32>(read(bytes + 3)) << 24;
}

FUNCTION int rows_before(const Component& component, int mcu_row) {
    return lesser(mcu_row * component.v, (component.rows + 7) / 8);
}

// A row of blocks.
struct Row {
    int c, y;       // of which component; its number there
    int at, limit;  // where in the parts its codes begin, and its part's blocks end; 0: not where it should be
    int behind;     // where the blocks end that have been looked at
};

// Row `number` of those that the region needs.
FUNCTION Row row_at(const Picture& picture, int number) {
    Row row = {};
    while (number >= picture.components[row.c].bottom - picture.components[row.c].top) {
        number -= picture.components[row.c].bottom - picture.components[row.c].top;
        ++row.c;
    }
    const Component& component = picture.components[row.c];
    row.y = component.top + number;
    const int mcu_row = row.y / component.v, part = mcu_row / picture.band;
    int place = row.y - mcu_row * component.v;  // among the part's rows
    for (int c = 0; c < component_count(picture); ++c) {
        const Component& other = picture.components[c];
        place += rows_before(other, c < row.c ? mcu_row + 1 : mcu_row) - rows_before(other, part * picture.band);
    }
    u32 start = 0, size = 0;
    for (int p = picture.first_part; p <= part; ++p) {
        start += size;
        if (picture.size - start < 4 * static_cast<u32>(place + 1) + SLACK) return row;
        size = word_of(picture, start);
        if (size > picture.size - start || size < 4 * static_cast<u32>(place + 2) + SLACK) return row;
    }
    const u32 at = word_of(picture, start + 4 * (place + 1));
    if (at > size) return row;
    row.at = start + at;
    row.limit = start + size - SLACK;
    return row;
}

// One column of a block whose numbers begin at `at`: 8 samples.
FUNCTION void unpack_column(const Picture& picture, const Form& form, int at, int least, int column, u8* target, int stride) {
    int sample = least;
    for (int r = 0; r < 8; ++r) {
        const int width = r ? form.other : form.first, bit = width * column;
        const u8* bytes = bytes_of(picture) + at + bit / 8;
        const int number = (read(bytes) | read(bytes + 1) << 8) >> bit % 8 & ((1 << width) - 1);
        sample = number + (r && form.steep ? sample - (1 << width >> 1) : least);
        target[static_cast<i64>(r) * stride] = static_cast<u8>(sample);
        at += width;
    }
}

// The needed blocks of a row: those in front of them are only counted. Eight threads for each, one for a column.
FUNCTION void unpack(int block, const Picture& picture) {
    SHARED(Row, row);
    SHARED(int, ends[2][THREADS]);
    PHASE(t) {
        if (t > 0) continue;
        row = row_at(picture, block - picture.first_row);
        const int across = (picture.components[row.c].columns + 7) / 8;
        row.behind = row.at + 2 * across;
        if (row.limit == 0 || row.behind > row.limit) {
            row.limit = 0;
            flag(picture, MISFIT);
        }
    }
    if (row.limit == 0) return;
    const Component& component = picture.components[row.c];
    const int across = (component.columns + 7) / 8;
    const u8* codes = bytes_of(picture) + row.at;
    u8* plane = reinterpret_cast<u8*>(component.plane) + static_cast<i64>(8 * (row.y - component.top)) * component.stride;
    for (int first = 0; first < component.right; first += THREADS) {
        PHASE(t) {
            const int code = first + t < component.right ? read(codes + first + t) : 0;
            if (code >= CODES) flag(picture, MISFIT);
            ends[0][t] = code < CODES ? Form(code).size() : 0;
        }
        prefix_sums(ends);
        PHASE(t) {
            const int count = lesser(THREADS, component.right - first);
            for (int i = t; i < 8 * count; i += THREADS) {
                const int x = first + i / 8, code = read(codes + x);
                if (x < component.left || code >= CODES) continue;
                const int end = row.behind + ends[0][i / 8];
                if (end > row.limit) {
                    flag(picture, MISFIT);
                    continue;
                }
                const Form form(code);
                u8* target = plane + 8 * (x - component.left) + i % 8;
                unpack_column(picture, form, end - form.size(), read(codes + across + x), i % 8, target, component.stride);
            }
        }
        PHASE(t) if (t == 0) row.behind += ends[0][THREADS - 1];
    }
}

KERNEL(jpeg_unpack, Picture, unpack)
