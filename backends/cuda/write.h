// A tile's values: each channel of a pixel through its table, in the layout that is asked for.

#pragma once
#include "tile.h"

template <class T> FUNCTION T value_of(int level, int c, const T* table, bool tabled) {
    return tabled ? table[c * 256 + level] : static_cast<T>(level);
}

// A group at a time.
template <int C, class T>
FUNCTION void write_groups(const Stage& stage, int top, int left, u32 t, const Pixel<C>* done, const T* table) {
    const int i = t % GROUPS * GROUP, j = t / GROUPS;
    if (left + i >= stage.width || top + j >= stage.height) return;
    const Group<Pixel<C>> pixels = *group_at(done + j * PITCH + i);
    T values[GROUP * C];
    UNROLL for (int n = 0; n < GROUP * C; ++n) values[n] = value_of(level(pixels.of[n / C], n % C), n % C, table, stage.table);
    const i64 pixel = static_cast<i64>(top + j) * stage.width + left + i;
    T* at = reinterpret_cast<T*>(stage.target) + pixel * (stage.planar ? 1 : C);
    const i64 next = stage.planar ? static_cast<i64>(stage.height) * stage.width : GROUP;
    UNROLL for (int c = 0; c < C; ++c) {
        Group<T> group;
        UNROLL for (int p = 0; p < GROUP; ++p) group.of[p] = stage.planar ? values[p * C + c] : values[c * GROUP + p];
        *group_at(at) = group;
        at += next;
    }
}

// One at a time, neighbours in the output by neighbouring threads.
template <int C, class T>
FUNCTION void write_values(const Stage& stage, int top, int left, u32 t, const Pixel<C>* done, const T* table) {
    const int height = lesser(TILE, stage.height - top), width = lesser(TILE, stage.width - left);
    const int lane = t % WARP, row = t / WARP;
    const i64 pitch = static_cast<i64>(stage.width) * (stage.planar ? 1 : C);
    T* target = reinterpret_cast<T*>(stage.target) + (top + row) * pitch;
    for (int j = 0; j < C; ++j) {
        const int value = lane + WARP * j;  // of a row of the tile, where channels are interleaved
        const int x = stage.planar ? lane : value / C, c = stage.planar ? j : value % C;
        if (x >= width) continue;
        T* at = target + (stage.planar ? c * stage.height * pitch + left + x : static_cast<i64>(left) * C + value);
        for (int y = row; y < height; y += LANES) {
            *at = value_of(level(done[y * PITCH + x], c), c, table, stage.table);
            at += LANES * pitch;
        }
    }
}

// `table` is [C][256] where the stage has one.
template <int C, class T>
FUNCTION void write(const Stage& stage, int top, int left, u32 t, const Pixel<C>* done, const void* table) {
    const T* values = static_cast<const T*>(table);
    const bool grouped = stage.width % GROUP == 0 && stage.target % alignof(Group<T>) == 0;  // so are all lines
    if (grouped) write_groups<C>(stage, top, left, t, done, values);
    else write_values<C>(stage, top, left, t, done, values);
}
