// A tile's values: each channel of a pixel through its table, in the layout that is asked for.

#pragma once
#include "tile.h"

template <class T> FUNCTION T value_of(int level, int c, const T* table, bool tabled) {
    return tabled ? table[c * 256 + level] : static_cast<T>(level);
}

// A group at a time.
template <int C, bool PLANAR, class T>
FUNCTION void write_groups(const Pass& pass, const Shown& rows, const Shown& columns, u32 t, const Pixel<C>* done,
                           const T* table) {
    constexpr int GROUPS = COLUMNS / GROUP, NEXT = THREADS / GROUPS, EACH = PLANAR ? 1 : C;
    const int x = t % GROUPS * GROUP, row = t / GROUPS, height = rows.count;
    if (x >= columns.count) return;
    const bool tabled = pass.table;
    const i64 width = pass.width, apart = PLANAR ? pass.height * width : GROUP;
    T* at = reinterpret_cast<T*>(pass.target) + ((rows.first + row) * width + (columns.first + x)) * EACH;
    for (int y = row; y < height; y += NEXT) {
        const Group<Pixel<C>> pixels = *group_at(done + y * PITCH + x);
        T values[GROUP * C];
        UNROLL for (int n = 0; n < GROUP * C; ++n)
            values[n] = value_of(level(pixels.of[n / C], n % C), n % C, table, tabled);
        UNROLL for (int c = 0; c < C; ++c) {
            Group<T> group;
            UNROLL for (int n = 0; n < GROUP; ++n) group.of[n] = values[PLANAR ? n * C + c : c * GROUP + n];
            *group_at(at + c * apart) = group;
        }
        at += NEXT * EACH * width;
    }
}

// One at a time, neighbours in the output by neighbouring threads.
template <int C, class T>
FUNCTION void write_values(const Pass& pass, const Shown& rows, const Shown& columns, u32 t, const Pixel<C>* done,
                           const T* table) {
    const int lane = t % WARP, row = t / WARP;
    const i64 left = columns.first, pitch = static_cast<i64>(pass.width) * (pass.planar ? 1 : C);
    T* target = reinterpret_cast<T*>(pass.target) + (rows.first + row) * pitch;
    for (int j = 0; j < C; ++j) {
        const int value = lane + WARP * j;  // of a row of the tile, where channels are interleaved
        const int x = pass.planar ? lane : value / C, c = pass.planar ? j : value % C;
        if (x >= columns.count) continue;
        T* at = target + (pass.planar ? c * pass.height * pitch + left + x : left * C + value);
        for (int y = row; y < rows.count; y += LANES) {
            *at = value_of(level(done[y * PITCH + x], c), c, table, pass.table);
            at += LANES * pitch;
        }
    }
}

// `table` is [C][256] where the pass has one.
template <int C, class T>
FUNCTION void write(const Pass& pass, const Shown& rows, const Shown& columns, u32 t, const Pixel<C>* done,
                    const void* table) {
    const T* values = static_cast<const T*>(table);
    const bool grouped = pass.width % GROUP == 0 && pass.target % alignof(Group<T>) == 0;  // so are all rows
    if (grouped && pass.planar) write_groups<C, true>(pass, rows, columns, t, done, values);
    else if (grouped) write_groups<C, false>(pass, rows, columns, t, done, values);
    else write_values<C>(pass, rows, columns, t, done, values);
}
