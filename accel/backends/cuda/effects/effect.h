// What the host tells the kernel of effects, which reads it here (`declarations.py`), and how pixels are read.
//
// A pixel is a word, its first channel the lowest byte; the bytes beyond its channels are not looked at.

#pragma once
#include "shim.h"

// The ops by name, for an enum and a switch: OP(name, what a pixel (y, x) of the result is).
#define PIXEL_OPS(OP)                                                                     \
    OP(COPIED, pixel_at(effect, y, x))                                                    \
    OP(GREY, grey(effect, y, x))                                                          \
    OP(SATURATED, saturated(pixel_at(effect, y, x), effect.numbers[0]))                   \
    OP(HUE, hue_shifted(pixel_at(effect, y, x), effect.counts[0]))                        \
    OP(PERMUTED, permuted(pixel_at(effect, y, x), effect.counts[0]))                      \
    OP(SHARPENED, sharpened(effect, y, x, effect.numbers[0]))                             \
    OP(BOX_BLURRED, box_blurred(effect, y, x))                                            \
    OP(FIXED, affine_fixed(effect, y, x))                                                 \
    OP(WARPED, warped(effect, y, x))                                                      \
    OP(TRANSPOSED, pixel_at(effect, x, y))                                                \
    OP(ERASED, erased(effect, y, x))

// Those whose pixels a block's threads make together (`run` in effects.cu).
#define TILE_OPS(OP) OP(BLURRED)

// Those whose result is a lookup table (statistic.h).
#define STATISTIC_OPS(OP) OP(CONTRAST) OP(AUTOCONTRAST) OP(EQUALIZED)

#define NAMED(NAME, ...) NAME,
enum EffectOp : int { PIXEL_OPS(NAMED) TILE_OPS(NAMED) STATISTIC_OPS(NAMED) };

enum Sampling : int { NEAREST = 0, BILINEAR = 2, BICUBIC = 3 };  // Pillow's codes

// One effect on one image of uint8 [rows, columns, channels].
struct Effect {
    u64 source;         // the pixel (0, 0) of what it is computed on
    u64 input_lut;      // uint8[channels][256], which the source is looked up in; 0: none
    u64 target;         // pixels, dense; of a statistic: a lookup table uint8[channels][256] for whoever reads the source
    u64 output_lut;     // uint8[output_channels][256], which the result is looked up in; 0: none
    u64 data;           // what else the op needs
    i64 pitch;          // bytes from one row of the source to the next
    double numbers[8];  // the op's parameters
    int op, sampling;
    int rows, columns, channels;    // of the source: 1 or 3
    int height, width, output_channels;  // of the result
    int first_block, across, blocks;  // tiles of the result: the first one's block, how many lie side by side, and all
    u32 fill;                       // a pixel
    int counts[6];                  // sizes and places, as the op has them
};

FUNCTION int level_at(const Effect& effect, int y, int x, int c) {
    const u8* source = reinterpret_cast<const u8*>(effect.source);
    const int level = read(source + y * effect.pitch + static_cast<i64>(x) * effect.channels + c);
    return effect.input_lut ? read(reinterpret_cast<const u8*>(effect.input_lut) + 256 * c + level) : level;
}

FUNCTION u32 pixel_at(const Effect& effect, int y, int x) {
    const u8* source = reinterpret_cast<const u8*>(effect.source) + y * effect.pitch;
    const u8* lut = reinterpret_cast<const u8*>(effect.input_lut);
    if (effect.channels == 1) return lut ? read(lut + read(source + x)) : read(source + x);
    source += static_cast<i64>(x) * 3;
    u32 red = read(source), green = read(source + 1), blue = read(source + 2);
    if (lut) {
        red = read(lut + red);
        green = read(lut + 256 + green);
        blue = read(lut + 512 + blue);
    }
    return red | green << 8 | blue << 16;
}

FUNCTION u32 repeated(u32 level) { return level * 0x010101; }

// A float in 0..255, cut to an integer.
FUNCTION int cut(float value) { return static_cast<int>(lesser(greater(value, 0.0f), 255.0f)); }

// Pillow's Blend.c, in float32.
FUNCTION int blended(int from, int to, float factor) {
    return cut(static_cast<float>(from) + factor * static_cast<float>(to - from));
}

FUNCTION bool has(int position, int length) { return position >= 0 && position < length; }
