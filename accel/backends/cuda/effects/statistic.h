// Statistics of a whole image, which end in a lookup table: one reduction by as many blocks as the image asks
// for; the last of them to finish makes the table. (Pillow: ImageOps.py, ImageEnhance.py.)

#pragma once
#include "effects/colour.h"

constexpr int MEASURED = 1 << 13;  // pixels of a block

// Of one image, between its blocks; zero before a launch, and after it. 32 bits count more pixels than Pillow opens.
struct Counters {
    u32 pixels[3][256];
    u32 blocks;
};

FUNCTION bool is_statistic(const Effect& effect) { return effect.op >= CONTRAST; }  // they come last

// `kinds` histograms, added to the image's. Whether this was the last block of the image to do so.
FUNCTION bool counted(const Effect& effect, int block, u32 (*pixels)[256], int* last) {
    const int kinds = effect.op == CONTRAST ? 1 : effect.channels;
    const u32 count = static_cast<u32>(effect.rows) * effect.columns, columns = effect.columns;
    const u32 start = static_cast<u32>(block) * MEASURED, stop = lesser(start + MEASURED, count);
    Counters* counters = reinterpret_cast<Counters*>(effect.data);
    PHASE(t) {
        for (int c = 0; c < kinds; ++c) pixels[c][t] = 0;
    }
    PHASE(t) {
        for (u32 i = start + t; i < stop; i += THREADS) {
            const u32 pixel = pixel_at(effect, i / columns, i % columns);
            if (effect.op == CONTRAST) atomicAdd(&pixels[0][effect.channels == 3 ? luma(pixel) : pixel], 1u);
            else
                for (int c = 0; c < kinds; ++c) atomicAdd(&pixels[c][byte_of(pixel, c)], 1u);
        }
    }
    PHASE(t) {
        for (int c = 0; c < kinds; ++c)
            if (pixels[c][t]) atomicAdd(&counters->pixels[c][t], pixels[c][t]);
        __threadfence();
    }
    PHASE(t) {
        if (t == 0) *last = atomicAdd(&counters->blocks, 1u) == static_cast<u32>(effect.blocks) - 1;
    }
    if (!*last) return false;
    PHASE(t) {
        for (int c = 0; c < kinds; ++c) pixels[c][t] = atomicExch(&counters->pixels[c][t], 0u);
        if (t == 0) atomicExch(&counters->blocks, 0u);
    }
    return true;
}

// ImageEnhance.Contrast's grey: the mean luma, rounded half up.
FUNCTION int mean(const u32* pixels) {
    i64 count = 0, total = 0;
    for (int v = 0; v < 256; ++v) {
        count += pixels[v];
        total += static_cast<i64>(pixels[v]) * v;
    }
    return static_cast<int>(static_cast<double>(total) / static_cast<double>(count) + 0.5);
}

// ImageOps.autocontrast without a cutoff: the channel's range is stretched to 0..255.
FUNCTION void stretch(const u32* pixels, u8* table) {
    int low = 0, high = 255;
    while (low < 255 && pixels[low] == 0) ++low;
    while (high > 0 && pixels[high] == 0) --high;
    const double scale = high > low ? 255.0 / (high - low) : 1.0, offset = high > low ? -low * scale : 0.0;
    for (int v = 0; v < 256; ++v) table[v] = static_cast<u8>(clip8(static_cast<int>(v * scale + offset)));
}

// ImageOps.equalize: the channel's cumulative histogram, in its integer arithmetic.
FUNCTION void equalize(const u32* pixels, u8* table) {
    int kinds = 0;
    i64 total = 0, last = 0;
    for (int v = 0; v < 256; ++v) {
        if (pixels[v] == 0) continue;
        ++kinds;
        last = pixels[v];
        total += last;
    }
    const i64 step = (total - last) / 255;
    i64 running = step / 2;
    for (int v = 0; v < 256; ++v) {
        table[v] = static_cast<u8>(kinds > 1 && step ? lesser<i64>(running / step, 255) : v);
        running += pixels[v];
    }
}

FUNCTION void statistic(const Effect& effect, int block) {
    SHARED(u32, pixels[3][256]);
    SHARED(u8, table[3][256]);
    SHARED(int, last);
    SHARED(int, grey);
    if (!counted(effect, block, pixels, &last)) return;
    PHASE(t) {
        if (effect.op == CONTRAST) {
            if (t == 0) grey = mean(pixels[0]);
        } else if (t % WARP == 0 && t / WARP < effect.channels) {
            const int c = t / WARP;
            if (effect.op == AUTOCONTRAST) stretch(pixels[c], table[c]);
            else equalize(pixels[c], table[c]);
        }
    }
    PHASE(t) {
        const u8* input_lut = reinterpret_cast<const u8*>(effect.input_lut);
        const u8* output_lut = reinterpret_cast<const u8*>(effect.output_lut);
        for (int c = 0; c < effect.channels; ++c) {
            const int level = input_lut ? read(input_lut + 256 * c + t) : t;
            const int found = effect.op == CONTRAST ? blended(grey, level, static_cast<float>(effect.numbers[0]))
                                                    : table[c][level];
            reinterpret_cast<u8*>(effect.target)[256 * c + t] = output_lut ? read(output_lut + 256 * c + found) : found;
        }
    }
}
