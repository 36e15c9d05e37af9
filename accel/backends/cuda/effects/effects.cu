// Effects: one launch for those of all images of a batch, whatever they are. A block makes one tile of one image's
// result, or counts a stretch of one image's pixels.

#include "effects/filter.h"
#include "effects/statistic.h"
#include "effects/warp.h"

FUNCTION u32 result(const Effect& effect, int y, int x) {
    switch (effect.op) {
#define CASE(NAME, PIXEL) case NAME: return PIXEL;
        PIXEL_OPS(CASE)
        default: return pixel_at(effect, y, x);
    }
}

// The tile's values, interleaved; neighbours by neighbouring threads.
FUNCTION void write(const Effect& effect, int top, int left, int t, const u32* done) {
    const int height = lesser(TILE, effect.height - top), width = lesser(TILE, effect.width - left);
    const i64 pitch = static_cast<i64>(effect.width) * effect.output_channels;
    const u8* lut = reinterpret_cast<const u8*>(effect.output_lut);
    u8* target = reinterpret_cast<u8*>(effect.target) + top * pitch + static_cast<i64>(left) * effect.output_channels;
    for (int value = t % WARP; value < width * effect.output_channels; value += WARP) {
        const int x = value / effect.output_channels, c = value % effect.output_channels;
        for (int y = t / WARP; y < height; y += THREADS / WARP) {
            const int level = byte_of(done[y * TILE + x], c);
            target[y * pitch + value] = lut ? read(lut + 256 * c + level) : level;
        }
    }
}

FUNCTION void run(int block, const Effect& effect) {
    const int tile = block - effect.first_block;
    if (is_statistic(effect)) {
        statistic(effect, tile);
        return;
    }
    const int top = tile / effect.across * TILE, left = tile % effect.across * TILE;
    SHARED(u32, done[TILE * TILE]);
    SHARED(Colours, middle[TILE * DEPTH]);
    if (effect.op == BLURRED) {
        blur(effect, top, left, middle, done);
    } else {
        PHASE(t) {
            for (int i = t; i < TILE * TILE; i += THREADS) {
                const int y = top + i / TILE, x = left + i % TILE;
                if (y < effect.height && x < effect.width) done[i] = result(effect, y, x);
            }
        }
    }
    PHASE(t) { write(effect, top, left, t, done); }
}

KERNEL(effects, Effect, run)
