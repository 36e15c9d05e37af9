// Elastic warps, which torchvision makes of `torch.nn.functional.grid_sample`, in float32 on the host.
//
// Source: PyTorch, aten/src/ATen/native/cpu/GridSamplerKernel.cpp. Where ATen is compiled for AVX2 or AVX512, its
// compiler contracts products and sums; elsewhere on x86 it does not. `counts`: whether it does, torchvision's version
// of the function (1 or 2), whether there is a fill colour, which `numbers` has; `data`: the grid, float32[rows][columns]
// of (x, y), from -1 to 1.

#pragma once
#include "effects/effect.h"

struct Place { float row, column; };

FUNCTION float plus(bool fused, float sum, float a, float b) { return fused ? fmaf(a, b, sum) : sum + a * b; }

FUNCTION Place place_of(const Effect& effect, bool fused, int y, int x) {
    const float* grid = reinterpret_cast<const float*>(effect.data) + 2 * (static_cast<i64>(y) * effect.width + x);
    return {plus(fused, -0.5f, read(grid + 1) + 1.0f, static_cast<float>(effect.rows) / 2.0f),
            plus(fused, -0.5f, read(grid) + 1.0f, static_cast<float>(effect.columns) / 2.0f)};
}

// The level of channel c at a whole place, 0 outside; of the channel behind the last one, 1 inside.
FUNCTION float sample(const Effect& effect, float row, float column, int c) {
    if (!(row > -1.0f && row < effect.rows && column > -1.0f && column < effect.columns)) return 0.0f;
    if (c == effect.channels) return 1.0f;
    return static_cast<float>(level_at(effect, static_cast<int>(row), static_cast<int>(column), c));
}

FUNCTION float between(const Effect& effect, bool fused, Place at, int c) {
    const float top = floorf(at.row), left = floorf(at.column);
    const float west = at.column - left, east = 1.0f - west, north = at.row - top, south = 1.0f - north;
    float sum = sample(effect, top, left, c) * (east * south);
    sum = plus(fused, sum, sample(effect, top, left + 1.0f, c), west * south);
    sum = plus(fused, sum, sample(effect, top + 1.0f, left, c), east * north);
    return plus(fused, sum, sample(effect, top + 1.0f, left + 1.0f, c), west * north);
}

FUNCTION u32 elastic(const Effect& effect, int y, int x) {
    const bool fused = effect.counts[0], filled = effect.counts[2];
    Place at = place_of(effect, fused, y, x);
    const bool nearest = effect.sampling == NEAREST;
    if (nearest) at = {rintf(at.row), rintf(at.column)};
    float share = 1.0f;  // of the image in the result; the rest is the fill colour's
    if (filled) share = nearest ? sample(effect, at.row, at.column, effect.channels)
                                : between(effect, fused, at, effect.channels);
    u32 pixel = 0;
    for (int c = 0; c < effect.channels; ++c) {
        float value = nearest ? sample(effect, at.row, at.column, c) : between(effect, fused, at, c);
        if (filled) {
            const float fill = static_cast<float>(effect.numbers[c]);
            if (nearest) value = share < 0.5f ? fill : value;
            else value = effect.counts[1] == 1 ? value * share + (1.0f - share) * fill : (value - fill) * share + fill;
        }
        pixel |= static_cast<u32>(cut(rintf(value))) << 8 * c;
    }
    return pixel;
}
