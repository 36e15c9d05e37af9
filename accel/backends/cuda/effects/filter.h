// Neighbourhood effects: Pillow's sharpness and box blur, and torch's Gaussian blur.

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

// BoxBlur.c along one axis: sums of uint32, which wrap; pixels beyond an end are the one there. `counts`: the radius, the
// weights of the pixels in it and of the two next to it, 24 bits after the binary point, and whether it is along a row.
FUNCTION u32 box_blurred(const Effect& effect, int y, int x) {
    const int radius = effect.counts[0], across = effect.counts[3];
    const u32 inner = effect.counts[1], outer = effect.counts[2];
    const int at = across ? x : y, last = (across ? effect.columns : effect.rows) - 1;
    u32 sums[3] = {1u << 23, 1u << 23, 1u << 23};
    for (int k = greater(at - radius - 1, 0); k <= lesser(at + radius + 1, last); ++k) {
        u32 weight = k < at - radius || k > at + radius ? outer : inner;
        if (k == 0 && at <= radius) weight += outer + inner * (radius - at);
        if (k == last && last - at <= radius) weight += outer + inner * (radius - last + at);
        const u32 pixel = pixel_at(effect, across ? y : k, across ? k : x);
        UNROLL for (int c = 0; c < 3; ++c) sums[c] += weight * byte_of(pixel, c);
    }
    return packed(sums[0] >> 24, sums[1] >> 24, sums[2] >> 24);
}

FUNCTION int reflected(int at, int length) {
    if (at < 0) at = -at;
    return at < length ? at : 2 * (length - 1) - at;
}

struct Colours { float of[3]; };
struct BlurSums { Colours of[PIXELS]; };

// Channels alike; of grey pixels the first one counts.
FUNCTION void add(Colours* sum, float weight, const Colours& value) {
    UNROLL for (int c = 0; c < 3; ++c) sum->of[c] = fmaf(weight, value.of[c], sum->of[c]);
}

// What is sent for a blur (`arguments.py`); behind it stand float32 across[counts[0]], down[counts[1]] and
// window[counts[1]][counts[0]]. `counts[2]`: whether torch adds products with one rounding.
struct Gaussian {
    float dark, bright;                    // how far from a whole number a sum below 127, or above, says how torch rounds
    int x_first, x_last, y_first, y_last;  // the weights across and down that are not 0
};

FUNCTION Colours colours_of(u32 pixel) {
    Colours found;
    UNROLL for (int c = 0; c < 3; ++c) found.of[c] = static_cast<float>(byte_of(pixel, c));
    return found;
}

// The sum down column x, from row `first` on. Where no row is reflected, the source is walked without asking.
FUNCTION Colours column_sum(const Effect& effect, const float* down, int high, int first, int x) {
    Colours sum = {};
    if (first >= 0 && first + high <= effect.rows && effect.channels == 3 && !effect.input_lut) {
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

// Whether so near a half that torch's sum may be beyond it.
FUNCTION bool undecided(const Gaussian& gaussian, float sum) {
    return fabsf(sum - rintf(sum)) >= (sum < 127.0f ? gaussian.dark : gaussian.bright);
}

// The sum over a pixel's whole window as torch makes it: row by row, tap after tap.
FUNCTION u32 summed_as_torch(const Effect& effect, const float* window, int y, int x) {
    const int wide = effect.counts[0], high = effect.counts[1];
    Colours sum = {};
    for (int i = 0; i < high; ++i) {
        const int row = reflected(y + i - high / 2, effect.rows);
        for (int j = 0; j < wide; ++j) {
            const float weight = read(window + i * wide + j);
            if (weight == 0.0f) continue;
            const Colours value = colours_of(pixel_at(effect, row, reflected(x + j - wide / 2, effect.columns)));
            if (effect.counts[2]) add(&sum, weight, value);
            else UNROLL for (int c = 0; c < 3; ++c) sum.of[c] += weight * value.of[c];
        }
    }
    return packed(cut(rintf(sum.of[0])), cut(rintf(sum.of[1])), cut(rintf(sum.of[2])));
}

// A tile of the convolution with a window of odd sides, the borders reflected, rounded half to even. As on the host:
// float32 sums down the columns, then across the row; where they do not say how torch's sum is rounded, that sum. The
// columns are walked in steps, so any size has room.
FUNCTION void blur(const Effect& effect, int top, int left, Colours* middle, u32* done) {
    const Gaussian& gaussian = *reinterpret_cast<const Gaussian*>(effect.data);
    const float* across = reinterpret_cast<const float*>(&gaussian + 1);
    const float* down = across + effect.counts[0];
    const float* window = down + effect.counts[1];
    const int wide = gaussian.x_last - gaussian.x_first, high = gaussian.y_last - gaussian.y_first;
    const int first = left - effect.counts[0] / 2 + gaussian.x_first, above = gaussian.y_first - effect.counts[1] / 2;
    const int stop = lesser(left + TILE, effect.width) - left + first + wide - 1;
    SHARED(int, count);  // of pixels that are undecided
    OWNED(BlurSums, sums);
    PHASE(t) {
        if (t == 0) count = 0;
        UNROLL for (int n = 0; n < PIXELS; ++n) OWN(sums, t).of[n] = {};
    }
    for (int from = first; from < stop; from += DEPTH) {
        PHASE(t) {
            for (int i = t; i < TILE * DEPTH; i += THREADS) {
                const int y = top + i / DEPTH, column = from + i % DEPTH;
                if (y >= effect.height || column >= stop) continue;
                middle[i] = column_sum(effect, down + gaussian.y_first, high, y + above, reflected(column, effect.columns));
            }
        }
        PHASE(t) {
            UNROLL for (int n = 0; n < PIXELS; ++n) {
                const int i = t + THREADS * n, y = i / TILE, x = i % TILE;
                if (top + y >= effect.height || left + x >= effect.width) continue;
                const int begin = first + x, done_before = greater(from - begin, 0);  // the first tap's column; taps done
                const int end = lesser(from + DEPTH - begin, wide);
                const Colours* at = middle + y * DEPTH + (begin - from);
                for (int k = done_before; k < end; ++k) add(&OWN(sums, t).of[n], read(across + gaussian.x_first + k), at[k]);
            }
        }
    }
    PHASE(t) {  // `middle` is free by now, and takes the numbers of the undecided
        UNROLL for (int n = 0; n < PIXELS; ++n) {
            const int i = t + THREADS * n;
            const Colours& sum = OWN(sums, t).of[n];
            done[i] = packed(cut(rintf(sum.of[0])), cut(rintf(sum.of[1])), cut(rintf(sum.of[2])));
            const bool more = effect.channels == 3 && (undecided(gaussian, sum.of[1]) || undecided(gaussian, sum.of[2]));
            if (top + i / TILE < effect.height && left + i % TILE < effect.width && (more || undecided(gaussian, sum.of[0])))
                middle[atomicAdd(&count, 1)].of[0] = static_cast<float>(i);
        }
    }
    PHASE(t) {
        for (int n = t; n < count; n += THREADS) {
            const int i = static_cast<int>(middle[n].of[0]);
            done[i] = summed_as_torch(effect, window, top + i / TILE, left + i % TILE);
        }
    }
}
