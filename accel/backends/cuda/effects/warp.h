// Warps: every pixel of the result shows a place of the source, or the fill colour. Places and interpolation follow
// Pillow's Geometry.c operation for operation, in its precision: nearest affine in 16.16 fixed point, else in double.

#pragma once
#include "effects/effect.h"

// Geometry.c, affine_fixed: `numbers` are integers, 65536 to a pixel: x = 0 + 1 * column + 2 * row, y = 3 + 4, 5 alike.
FUNCTION u32 affine_fixed(const Effect& effect, int y, int x) {
    const double* a = effect.numbers;
    const i64 column = static_cast<i64>(a[0]) + static_cast<i64>(a[1]) * x + static_cast<i64>(a[2]) * y;
    const i64 row = static_cast<i64>(a[3]) + static_cast<i64>(a[4]) * x + static_cast<i64>(a[5]) * y;
    const bool inside = column >= 0 && column >> 16 < effect.columns && row >= 0 && row >> 16 < effect.rows;
    return inside ? pixel_at(effect, static_cast<int>(row >> 16), static_cast<int>(column >> 16)) : effect.fill;
}

FUNCTION double linear(double one, double two, double share) { return one + (two - one) * share; }

// Geometry.c's BICUBIC, its sums in its order.
FUNCTION double cubic(double a, double b, double c, double d, double share) {
    const double p2 = -a + c, p3 = 2.0 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + share * (p2 + share * (p3 + share * p4));
}

FUNCTION int clamp(int position, int length) { return lesser(greater(position, 0), length - 1); }

FUNCTION double linear_row(const Effect& effect, int row, int x, int c, double dx) {
    const int y = clamp(row, effect.rows), last = effect.columns;
    return linear(level_at(effect, y, clamp(x, last), c), level_at(effect, y, clamp(x + 1, last), c), dx);
}

FUNCTION double cubic_row(const Effect& effect, int row, int x, int c, double dx) {
    const int y = clamp(row, effect.rows), last = effect.columns;
    return cubic(level_at(effect, y, clamp(x - 1, last), c), level_at(effect, y, clamp(x, last), c),
                 level_at(effect, y, clamp(x + 1, last), c), level_at(effect, y, clamp(x + 2, last), c), dx);
}

FUNCTION u32 interpolated(const Effect& effect, int y, int x, double dy, double dx) {
    u32 pixel = 0;
    for (int c = 0; c < effect.channels; ++c) {
        double value;
        if (effect.sampling == BILINEAR)
            value = linear(linear_row(effect, y, x, c, dx), linear_row(effect, y + 1, x, c, dx), dy);
        else
            value = cubic(cubic_row(effect, y - 1, x, c, dx), cubic_row(effect, y, x, c, dx),
                          cubic_row(effect, y + 1, x, c, dx), cubic_row(effect, y + 2, x, c, dx), dy);
        pixel |= static_cast<u32>(static_cast<int>(lesser(greater(value, 0.0), 255.0))) << 8 * c;
    }
    return pixel;
}

// Geometry.c, ImagingGenericTransform: `numbers` are the coefficients, eight where `counts[0]`, else six.
FUNCTION u32 warped(const Effect& effect, int y, int x) {
    const double* a = effect.numbers;
    const double x_at = x + 0.5, y_at = y + 0.5;
    double column = a[0] * x_at + a[1] * y_at + a[2], row = a[3] * x_at + a[4] * y_at + a[5];
    if (effect.counts[0]) {
        const double depth = a[6] * x_at + a[7] * y_at + 1.0;
        column /= depth;
        row /= depth;
    }
    if (!(column >= 0.0 && column < effect.columns && row >= 0.0 && row < effect.rows)) return effect.fill;
    if (effect.sampling == NEAREST) return pixel_at(effect, static_cast<int>(row), static_cast<int>(column));
    column -= 0.5;
    row -= 0.5;
    const double left = floor(column), top = floor(row);
    return interpolated(effect, static_cast<int>(top), static_cast<int>(left), row - top, column - left);
}
