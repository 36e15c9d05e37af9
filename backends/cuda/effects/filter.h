// Neighbourhood effects: Pillow's sharpness, and Gaussian blur.

#pragma once
#include "effects/effect.h"

constexpr int TILE = 32;   // rows and columns of a tile
constexpr int DEPTH = 64;  // columns of a step of the blur
constexpr int PIXELS = TILE * TILE / THREADS;

// ImageEnhance.Sharpness: a blend with the image smoothed by (1 1 1, 1 5 1, 1 1 1) / 13, its border kept. Filter.c sums
// in float32; no sum lies within 1/26 of where it is cut, so integers give the same.
FUNCTION u32 sharpened(const Effect& effect, int y, int x, float factor) {
    if (y == 0 || x == 0 || y == effect.rows - 1 || x == effect.columns - 1) return pixel_at(effect, y, x);
    u32 pixel = 0;
    for (int c = 0; c < effect.channels; ++c) {
        const int value = level_at(effect, y, x, c);
        int total = 4 * value;
        for (int row = y - 1; row <= y + 1; ++row)
            for (int column = x - 1; column <= x + 1; ++column) total += level_at(effect, row, column, c);
        pixel |= static_cast<u32>(blended((2 * total + 13) / 26, value, factor)) << 8 * c;
    }
    return pixel;
}

FUNCTION int reflected(int at, int length) {
    if (at < 0) at = -at;
    return at < length ? at : 2 * (length - 1) - at;
}

struct Colours { float of[3]; };
struct BlurSums { Colours of[PIXELS]; };

FUNCTION Colours nothing() { return {{0.0f, 0.0f, 0.0f}}; }

// Channels alike; of grey pixels the first one counts.
FUNCTION void add(Colours* sum, float weight, const Colours& value) {
    UNROLL for (int c = 0; c < 3; ++c) sum->of[c] += weight * value.of[c];
}

FUNCTION Colours colours_of(u32 pixel) {
    Colours found;
    UNROLL for (int c = 0; c < 3; ++c) found.of[c] = static_cast<float>(byte_of(pixel, c));
    return found;
}

// The sum down column x for output row y. Where no row is reflected, the source is walked without asking.
FUNCTION Colours column_sum(const Effect& effect, const float* down, int high, int y, int x) {
    Colours sum = nothing();
    const int first = y - high / 2;
    if (first >= 0 && first + high <= effect.rows && effect.channels == 3 && !effect.seen) {
        const u8* at = reinterpret_cast<const u8*>(effect.source) + first * effect.pitch + static_cast<i64>(x) * 3;
        for (int k = 0; k < high; ++k, at += effect.pitch) {
            const Colours value = {{static_cast<float>(read(at)), static_cast<float>(read(at + 1)),
                                    static_cast<float>(read(at + 2))}};
            add(&sum, read(down + k), value);
        }
        return sum;
    }
    for (int k = 0; k < high; ++k)
        add(&sum, read(down + k), colours_of(pixel_at(effect, reflected(first + k, effect.rows), x)));
    return sum;
}

// A tile of the convolution with the outer product of two odd kernels (`data`: float32[counts[0]] across, then
// float32[counts[1]] down), the borders reflected, rounded half to even. As on the host: float32 sums down the columns,
// then across the row, each from its first tap on. The columns are walked in steps, so any size has room.
FUNCTION void blur(const Effect& effect, int top, int left, Colours* middle, u32* done) {
    const int wide = effect.counts[0], high = effect.counts[1];
    const float* across = reinterpret_cast<const float*>(effect.data);
    const float* down = across + wide;
    const int first = left - wide / 2, stop = lesser(left + TILE, effect.width) + wide / 2;
    OWNED(BlurSums, sums);
    PHASE(t) {
        UNROLL for (int n = 0; n < PIXELS; ++n) OWN(sums, t).of[n] = nothing();
    }
    for (int from = first; from < stop; from += DEPTH) {
        PHASE(t) {
            for (int i = t; i < TILE * DEPTH; i += THREADS) {
                const int y = top + i / DEPTH, column = from + i % DEPTH;
                if (y >= effect.height || column >= stop) continue;
                middle[i] = column_sum(effect, down, high, y, reflected(column, effect.columns));
            }
        }
        PHASE(t) {
            UNROLL for (int n = 0; n < PIXELS; ++n) {
                const int i = t + THREADS * n, y = i / TILE, x = i % TILE;
                if (top + y >= effect.height || left + x >= effect.width) continue;
                const int begin = first + x, begun = greater(from - begin, 0);  // the first tap's column; taps done
                const int end = lesser(from + DEPTH - begin, wide);
                const Colours* at = middle + y * DEPTH + (begin - from);
                for (int k = begun; k < end; ++k) add(&OWN(sums, t).of[n], read(across + k), at[k]);
            }
        }
    }
    PHASE(t) {
        UNROLL for (int n = 0; n < PIXELS; ++n) {
            const Colours& sum = OWN(sums, t).of[n];
            done[t + THREADS * n] = packed(cut(rintf(sum.of[0])), cut(rintf(sum.of[1])), cut(rintf(sum.of[2])));
        }
    }
}
