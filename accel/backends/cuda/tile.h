// A tile of the fused pass: its pixels, and what is shown at its positions. One block makes one tile of one image.

#pragma once
#include "pass.h"

constexpr int ROWS = 64, COLUMNS = 32;
constexpr int LONGEST = ROWS;
constexpr int GROUP = 4;                // neighbouring pixels that a thread makes, reads and writes at once
constexpr int PITCH = COLUMNS + GROUP;  // pixels from row to row in shared memory: columns lie in different banks, too
constexpr int LANES = THREADS / WARP;

static_assert(COLUMNS == WARP && ROWS >= COLUMNS, "lanes lie along columns");

// A pixel of C bytes in shared memory, read and written at once; the first channel is the lowest byte.
template <int C> struct Pixel;
template <> struct Pixel<1> { u8 word; };
template <> struct Pixel<3> { u32 word; };

// Four neighbours, read and written at once.
template <class T> struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Group { T of[GROUP]; };

template <int C> FUNCTION int level(Pixel<C> pixel, int c) { return byte_of(pixel.word, c); }

FUNCTION Pixel<1> clipped(const int (&values)[1]) { return {static_cast<u8>(packed(values[0], 0, 0))}; }
FUNCTION Pixel<3> clipped(const int (&values)[3]) { return {packed(values[0], values[1], values[2])}; }

template <int C> FUNCTION Pixel<C> load(const u8* at) {
    int values[C];
    UNROLL for (int c = 0; c < C; ++c) values[c] = read(at + c);
    return clipped(values);
}

template <int C> FUNCTION Pixel<C> looked_up(Pixel<C> pixel, const u8* lut) {
    int values[C];
    UNROLL for (int c = 0; c < C; ++c) values[c] = read(lut + 256 * c + level(pixel, c));
    return clipped(values);
}

template <class T> FUNCTION T* pixels_of(Group<T>* groups) { return reinterpret_cast<T*>(groups); }
template <class T> FUNCTION Group<T>* group_at(T* at) { return reinterpret_cast<Group<T>*>(at); }
template <class T> FUNCTION const Group<T>* group_at(const T* at) { return reinterpret_cast<const Group<T>*>(at); }

// The tile's positions along one axis.
struct Shown {
    int code[LONGEST];                // position or fill code
    int tap[LONGEST], taps[LONGEST];  // what it is made of; no taps where it is a fill or lies outside
    int first, count;                 // positions of the output
    int low, high;                    // the positions from `low` to before `high` cover all taps
    int most;                         // taps of a position
    int bits;                         // of coefficients, after the binary point
    int filled;                       // whether there is a fill
};

FUNCTION void begin(int first, int count, Shown* shown) {
    shown->first = first;
    shown->count = count;
    shown->low = 0x7fffffff;
    shown->high = shown->most = shown->filled = 0;
}

FUNCTION int code_at(const Axis& axis, int p) {
    return axis.window ? read(reinterpret_cast<const int*>(axis.window) + p) : axis.start + axis.step * p;
}

FUNCTION int bits_of(const Axis& axis) { return read(reinterpret_cast<const int*>(axis.bounds) + 2 * axis.count); }

FUNCTION void look(const Axis& axis, int i, bool resampled, Shown* shown) {
    if (resampled && i == 0) shown->bits = bits_of(axis);
    shown->tap[i] = shown->taps[i] = 0;
    shown->code[i] = -1;
    if (i >= shown->count) return;
    const int code = shown->code[i] = code_at(axis, shown->first + i);
    if (code < 0) atomicMax(&shown->filled, 1);
    if (code < 0 || !resampled) return;
    const int* bounds = reinterpret_cast<const int*>(axis.bounds);
    bounds += code - axis.first;
    const int tap = read(bounds), taps = read(bounds + axis.count);
    shown->tap[i] = tap;
    shown->taps[i] = taps;
    atomicMin(&shown->low, tap);
    atomicMax(&shown->high, tap + taps);
    atomicMax(&shown->most, taps);
}
