// What a JPEG file makes of a picture, without the file: its entropy coding loses nothing, so there is none here.
//
// Two stages: samples as the decoder has them, from pixels; and pixels from those. libjpeg-turbo's arithmetic: colour
// (jccolor.c, jdcolor.c), subsampling and its borders (jcsample.c, jcprepct.c), the "islow" transforms (jfdctint.c,
// islow.h), quantisation (jcdctmgr.c), fancy upsampling (jdsample.c).

#pragma once
#include "effects/effect.h"
#include "effects/filter.h"
#include "jpeg/islow.h"

constexpr int SIDE = 8, SAMPLES = 64;              // of a block
constexpr int BLOCKS = TILE * TILE / SAMPLES * 3 / 2;  // of a tile: luma, and two chromas of half the size
constexpr int LUMA_BLOCKS = TILE * TILE / SAMPLES;

// The planes of samples: luma [rows][columns], then twice [(rows + 1) / 2][(columns + 1) / 2].
FUNCTION int halved(int length) { return (length + 1) / 2; }

FUNCTION i64 plane_of(int c, int rows, int columns) {
    return c == 0 ? 0 : static_cast<i64>(rows) * columns + (c - 1) * static_cast<i64>(halved(rows)) * halved(columns);
}

FUNCTION u32 ycc(u32 pixel) {
    const int red = byte_of(pixel, 0), green = byte_of(pixel, 1), blue = byte_of(pixel, 2);
    constexpr int HALF = 1 << 15, MIDDLE = (128 << 16) + HALF - 1;
    const int y = (19595 * red + 38470 * green + 7471 * blue + HALF) >> 16;
    const int cb = (-11059 * red - 21709 * green + 32768 * blue + MIDDLE) >> 16;
    const int cr = (32768 * red - 27439 * green - 5329 * blue + MIDDLE) >> 16;
    return y | cb << 8 | cr << 16;
}

FUNCTION int descale(int value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

// The one-dimensional forward DCT of eight values; SHIFT: of what is multiplied, EVEN: of what is not (if below 0, up).
template <int SHIFT, int EVEN> FUNCTION void forward_dct(int* x) {
    const int s0 = x[0] + x[7], s1 = x[1] + x[6], s2 = x[2] + x[5], s3 = x[3] + x[4];
    const int d0 = x[0] - x[7], d1 = x[1] - x[6], d2 = x[2] - x[5], d3 = x[3] - x[4];
    const int a0 = s0 + s3, a3 = s0 - s3, a1 = s1 + s2, a2 = s1 - s2;
    const int even = (a2 + a3) * 4433;
    x[0] = EVEN < 0 ? (a0 + a1) * (1 << -EVEN) : descale(a0 + a1, greater(EVEN, 1));
    x[4] = EVEN < 0 ? (a0 - a1) * (1 << -EVEN) : descale(a0 - a1, greater(EVEN, 1));
    x[2] = descale(even + a3 * 6270, SHIFT);
    x[6] = descale(even - a2 * 15137, SHIFT);
    const int z1 = (d3 + d0) * -7373, z2 = (d2 + d1) * -20995, z5 = (d3 + d1 + d2 + d0) * 9633;
    const int z3 = z5 - (d3 + d1) * 16069, z4 = z5 - (d2 + d0) * 3196;
    x[7] = descale(d3 * 2446 + z1 + z3, SHIFT);
    x[5] = descale(d2 * 16819 + z2 + z4, SHIFT);
    x[3] = descale(d1 * 25172 + z2 + z3, SHIFT);
    x[1] = descale(d0 * 12299 + z1 + z4, SHIFT);
}

// Where a sample of block b of a tile lies in its plane of the tile: 32 x 32 of luma, 16 x 16 of chroma.
struct Spot { int c, row, column; };

FUNCTION Spot spot_of(int b, int i, int j) {
    if (b < LUMA_BLOCKS) return {0, b / (TILE / SIDE) * SIDE + i, b % (TILE / SIDE) * SIDE + j};
    const int n = (b - LUMA_BLOCKS) % 4;
    return {1 + (b - LUMA_BLOCKS) / 4, n / 2 * SIDE + i, n % 2 * SIDE + j};
}

// A sample before the transform. `tile`: its pixels, those beyond the picture repeated from its border; `last`: the
// picture's last row of chroma in the tile, which stands for those below it.
FUNCTION int encoded_sample(const u32* tile, Spot at, int last) {
    if (at.c == 0) return byte_of(tile[at.row * TILE + at.column], 0);
    const u32* pixels = tile + 2 * lesser(at.row, last) * TILE + 2 * at.column;
    const int sum = byte_of(pixels[0], at.c) + byte_of(pixels[1], at.c) + byte_of(pixels[TILE], at.c) +
                    byte_of(pixels[TILE + 1], at.c);
    return (sum + 1 + (at.column & 1)) >> 2;
}

// Pixels to the decoder's samples. `data`: the quantisation tables, int[2][64], row by row. `height` and `width` are
// those of the pixels as well.
FUNCTION void encode(const Effect& effect, int top, int left, int (*lines)[SIDE][SIDE + 1], u32* tile) {
    const int rows = effect.rows, columns = effect.columns;
    const int count = effect.channels == 3 ? BLOCKS : LUMA_BLOCKS;
    const int last = lesser(halved(rows) - 1 - top / 2, TILE / 2 - 1);
    PHASE(t) {
        for (int i = t; i < TILE * TILE; i += THREADS) {
            const u32 pixel = pixel_at(effect, lesser(top + i / TILE, rows - 1), lesser(left + i % TILE, columns - 1));
            tile[i] = effect.channels == 3 ? ycc(pixel) : pixel;
        }
    }
    PHASE(t) {
        const int b = t / SIDE, row = t % SIDE;
        if (b >= count) continue;
        int values[SIDE];
        UNROLL for (int j = 0; j < SIDE; ++j) values[j] = encoded_sample(tile, spot_of(b, row, j), last) - 128;
        forward_dct<CONSTANT_BITS - FIRST_PASS_BITS, -FIRST_PASS_BITS>(values);
        UNROLL for (int j = 0; j < SIDE; ++j) lines[b][row][j] = values[j];
    }
    PHASE(t) {
        const int b = t / SIDE, column = t % SIDE;
        if (b >= count) continue;
        const int* table = reinterpret_cast<const int*>(effect.data) + (b < LUMA_BLOCKS ? 0 : SAMPLES) + column;
        int values[SIDE];
        UNROLL for (int i = 0; i < SIDE; ++i) values[i] = lines[b][i][column];
        forward_dct<CONSTANT_BITS + FIRST_PASS_BITS, FIRST_PASS_BITS>(values);
        UNROLL for (int i = 0; i < SIDE; ++i) {
            const int step = read(table + i * SIDE), size = values[i] < 0 ? -values[i] : values[i];
            const int level = (size + 4 * step) / (8 * step);  // the transform leaves a factor of 8
            values[i] = (values[i] < 0 ? -level : level) * step;
        }
        inverse_dct<CONSTANT_BITS - FIRST_PASS_BITS>(values);
        UNROLL for (int i = 0; i < SIDE; ++i) lines[b][i][column] = values[i];
    }
    PHASE(t) {
        const int b = t / SIDE, row = t % SIDE;
        if (b >= count) continue;
        int values[SIDE];
        UNROLL for (int j = 0; j < SIDE; ++j) values[j] = lines[b][row][j];
        inverse_dct<CONSTANT_BITS + FIRST_PASS_BITS + 3>(values);
        const Spot at = spot_of(b, row, 0);
        const int shift = at.c ? 1 : 0, y = (top >> shift) + at.row, x = (left >> shift) + at.column;
        const int height = at.c ? halved(rows) : rows, width = at.c ? halved(columns) : columns;
        if (y >= height) continue;
        u8* target = reinterpret_cast<u8*>(effect.target) + plane_of(at.c, rows, columns) + static_cast<i64>(y) * width;
        UNROLL for (int j = 0; j < SIDE; ++j)
            if (x + j < width) target[x + j] = static_cast<u8>(clip8(values[j] + 128));
    }
}

FUNCTION int chroma_at(const u8* plane, int rows, int columns, int y, int x) {
    return read(plane + static_cast<i64>(lesser(greater(y, 0), rows - 1)) * columns +
                lesser(greater(x, 0), columns - 1));
}

// 3/4 the nearer, 1/4 the further sample, in both directions; of narrow pictures the nearest one.
FUNCTION int chroma(const Effect& effect, int c, int y, int x) {
    const u8* plane = reinterpret_cast<const u8*>(effect.source) + plane_of(c, effect.rows, effect.columns);
    const int rows = halved(effect.rows), columns = halved(effect.columns), row = y >> 1, column = x >> 1;
    if (columns <= 2) return chroma_at(plane, rows, columns, row, column);
    const int far_row = row + 2 * (y & 1) - 1, far_column = column + 2 * (x & 1) - 1;
    const int near = 3 * chroma_at(plane, rows, columns, row, column) + chroma_at(plane, rows, columns, far_row, column);
    const int far = 3 * chroma_at(plane, rows, columns, row, far_column) +
                    chroma_at(plane, rows, columns, far_row, far_column);
    return (3 * near + far + 8 - (x & 1)) >> 4;
}

// The decoder's samples to a pixel.
FUNCTION u32 decoded(const Effect& effect, int y, int x) {
    const int luma = read(reinterpret_cast<const u8*>(effect.source) + static_cast<i64>(y) * effect.columns + x);
    if (effect.channels == 1) return luma;
    const int cb = chroma(effect, 1, y, x) - 128, cr = chroma(effect, 2, y, x) - 128;
    return packed(luma + ((91881 * cr + 32768) >> 16), luma + ((-22554 * cb - 46802 * cr + 32768) >> 16),
                  luma + ((116130 * cb + 32768) >> 16));
}
