// Mixes of channels: every pixel from the same pixel of the source. Pillow's own arithmetic, operation for operation
// (src/libImaging: Convert.c, Blend.c), in its precision.

#pragma once
#include "effects/effect.h"

// ITU-R 601-2 luma in 16-bit fixed point: Convert.c's L24.
FUNCTION u32 luma(u32 pixel) {
    return (byte_of(pixel, 0) * 19595u + byte_of(pixel, 1) * 38470u + byte_of(pixel, 2) * 7471u + 0x8000u) >> 16;
}

FUNCTION u32 grey(const Effect& effect, int y, int x) {
    const u32 pixel = pixel_at(effect, y, x);
    return repeated(effect.channels == 3 ? luma(pixel) : pixel);
}

FUNCTION u32 saturated(u32 pixel, float factor) {
    const int grey = luma(pixel);
    return packed(blended(grey, byte_of(pixel, 0), factor), blended(grey, byte_of(pixel, 1), factor),
                  blended(grey, byte_of(pixel, 2), factor));
}

// `order`: for each channel the source's, in bytes.
FUNCTION u32 permuted(u32 pixel, u32 order) {
    return packed(byte_of(pixel, byte_of(order, 0)), byte_of(pixel, byte_of(order, 1)),
                  byte_of(pixel, byte_of(order, 2)));
}

// To HSV, `shift` added to the hue modulo 256, and back: Convert.c's rgb2hsv and hsv2rgb, float where they have float.
FUNCTION u32 hue_shifted(u32 pixel, int shift) {
    const int red = byte_of(pixel, 0), green = byte_of(pixel, 1), blue = byte_of(pixel, 2);
    const int high = greater(red, greater(green, blue)), low = lesser(red, lesser(green, blue));
    int hue = 0, saturation = 0;
    if (high > low) {
        const float range = static_cast<float>(high - low);
        const int third = red == high ? 0 : green == high ? 2 : 4;
        const int plus = third == 0 ? blue : third == 2 ? red : green;
        const int minus = third == 0 ? green : third == 2 ? blue : red;
        const float place = static_cast<float>(static_cast<double>(third) + static_cast<float>(high - plus) / range -
                                               static_cast<float>(high - minus) / range);
        const double turns = static_cast<double>(place) / 6.0 + 1.0;
        const float part = static_cast<float>(turns >= 1.0 ? turns - 1.0 : turns);
        hue = static_cast<int>(static_cast<double>(part) * 255.0);
        saturation = static_cast<int>(static_cast<double>(range / static_cast<float>(high)) * 255.0);
    }
    hue = (hue + shift) & 255;
    // Convert.c divides by 255 in double and rounds to float; dividing in float gives the same for all 256 levels
    const double top = high;
    const int sector = hue * 6 / 255;
    const float rest = static_cast<float>(hue * 6 - sector * 255) / 255.0f;
    const float share = static_cast<float>(saturation) / 255.0f;
    const int p = static_cast<int>(top * (1.0 - static_cast<double>(share)) + 0.5);
    const int q = static_cast<int>(top * (1.0 - static_cast<double>(share * rest)) + 0.5);
    const int t = static_cast<int>(top * (1.0 - share * (1.0 - static_cast<double>(rest))) + 0.5);
    switch (sector) {
        case 1: return packed(q, high, p);
        case 2: return packed(p, high, t);
        case 3: return packed(p, q, high);
        case 4: return packed(t, p, high);
        case 5: return packed(high, p, q);
        default: return packed(high, t, p);
    }
}

// A rectangle's pixels are given. `counts`: its top, left, height and width, and how many rows and columns `data`, of
// uint8 [rows, columns, channels], has; where it is 1 they repeat.
FUNCTION u32 erased(const Effect& effect, int y, int x) {
    const int row = y - effect.counts[0], column = x - effect.counts[1];
    if (!has(row, effect.counts[2]) || !has(column, effect.counts[3])) return pixel_at(effect, y, x);
    const i64 at = static_cast<i64>(lesser(row, effect.counts[4] - 1)) * effect.counts[5] +
                   lesser(column, effect.counts[5] - 1);
    const u8* given = reinterpret_cast<const u8*>(effect.data) + at * effect.channels;
    u32 pixel = 0;
    for (int c = 0; c < effect.channels; ++c) pixel |= static_cast<u32>(read(given + c)) << 8 * c;
    return pixel;
}
