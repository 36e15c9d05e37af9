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

struct BlurSums { float of[PIXELS]; };

// A tile of the convolution with the outer product of two odd kernels (`data`: float32[counts[0]] across, then
// float32[counts[1]] down), the borders reflected, rounded half to even. As on the host: float32 sums down the columns,
// then across the row, each from its first tap on. The columns are walked in steps, so any size has room.
FUNCTION void blur(const Effect& effect, int top, int left, float* middle, u32* done) {
    const int wide = effect.counts[0], high = effect.counts[1];
    const float* across = reinterpret_cast<const float*>(effect.data);
    const float* down = across + wide;
    const int first = left - wide / 2, stop = lesser(left + TILE, effect.width) + wide / 2;
    OWNED(BlurSums, sums);
    for (int c = 0; c < effect.channels; ++c) {
        PHASE(t) {
            for (int n = 0; n < PIXELS; ++n) {
                OWN(sums, t).of[n] = 0.0f;
                if (c == 0) done[t + THREADS * n] = 0;
            }
        }
        for (int from = first; from < stop; from += DEPTH) {
            PHASE(t) {
                for (int i = t; i < TILE * DEPTH; i += THREADS) {
                    const int y = top + i / DEPTH, column = from + i % DEPTH;
                    if (y >= effect.height || column >= stop) continue;
                    const int x = reflected(column, effect.columns);
                    float sum = 0.0f;
                    for (int k = 0; k < high; ++k) {
                        const int row = reflected(y + k - high / 2, effect.rows);
                        sum += read(down + k) * static_cast<float>(level_at(effect, row, x, c));
                    }
                    middle[i] = sum;
                }
            }
            PHASE(t) {
                for (int n = 0; n < PIXELS; ++n) {
                    const int i = t + THREADS * n, y = i / TILE, x = i % TILE;
                    if (top + y >= effect.height || left + x >= effect.width) continue;
                    const int begin = first + x, begun = greater(from - begin, 0);  // the first tap's column; taps done
                    const int end = lesser(from + DEPTH - begin, wide);
                    float sum = OWN(sums, t).of[n];
                    for (int k = begun; k < end; ++k) sum += read(across + k) * middle[y * DEPTH + begin + k - from];
                    OWN(sums, t).of[n] = sum;
                }
            }
        }
        PHASE(t) {
            for (int n = 0; n < PIXELS; ++n)
                done[t + THREADS * n] |= static_cast<u32>(cut(rintf(OWN(sums, t).of[n]))) << 8 * c;
        }
    }
}
