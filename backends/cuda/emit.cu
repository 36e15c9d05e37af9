// One fused pass: view, resample, window, value table, layout and dtype. One block makes one tile of one image.

#include "resample.h"
#include "write.h"

// The value table, 16 bytes at a time.
struct alignas(16) Words { u32 of[4]; };

template <int C> FUNCTION void emit(int block, const Stage& stage) {
    const u32 tile = block - stage.first_block, across = stage.across;
    const int top = tile / across * TILE, left = tile % across * TILE;
    SHARED(Shown, rows);
    SHARED(Shown, columns);
    SHARED(Few, few[2]);
    SHARED(Pixel<C>, middle[DEPTH * PITCH]);
    SHARED(Pixel<C>, done[TILE * PITCH]);
    SHARED(Words, near[C * 256 / 4]);  // the table, where its values have up to 4 bytes

    PHASE(t) {
        if (t == 0) {
            clear(&rows);
            clear(&columns);
        }
        if (!stage.table || t >= C * 256 * stage.itemsize / 16 || stage.itemsize > 4) continue;
        near[t] = reinterpret_cast<const Words*>(stage.table)[t];
    }
    PHASE(t) {
        const bool resampled = stage.mode != COPY;
        if (t < TILE) look(stage.rows, top, stage.height, t, resampled, &rows);
        else if (t < 2 * TILE) look(stage.columns, left, stage.width, t - TILE, resampled, &columns);
    }
    if (stage.mode == COLUMNS_FIRST) resample<C, false>(stage, rows, columns, few, middle, done);
    if (stage.mode == ROWS_FIRST) resample<C, true>(stage, rows, columns, few, middle, done);
    if (stage.mode == COPY || rows.filled || columns.filled) {  // else all of it is resampled
        PHASE(t) {
            const u8* source = reinterpret_cast<const u8*>(stage.source) + stage.origin;
            for (int i = t; i < TILE * TILE; i += THREADS) {
                const int y = i / TILE, x = i % TILE;
                if (top + y >= stage.height || left + x >= stage.width) continue;
                const int row = rows.code[y], column = columns.code[x], code = lesser(row, column);
                Pixel<C>* at = done + y * PITCH + x;
                if (code < 0)
                    *at = load<C>(reinterpret_cast<const u8*>(stage.fills) + static_cast<i64>(-1 - code) * C);
                else if (stage.mode == COPY) {
                    *at = load<C>(source + row * stage.rows.stride + column * stage.columns.stride);
                    if (stage.seen) *at = looked_up<C>(*at, reinterpret_cast<const u8*>(stage.seen));
                }
            }
        }
    }
    PHASE(t) {
        switch (stage.itemsize) {
            case 1: write<C, u8>(stage, top, left, t, done, near); break;
            case 2: write<C, u16>(stage, top, left, t, done, near); break;
            case 4: write<C, u32>(stage, top, left, t, done, near); break;
            default: write<C, u64>(stage, top, left, t, done, reinterpret_cast<const void*>(stage.table));
        }
    }
}

KERNEL(emit1, Stage, emit<1>)
KERNEL(emit3, Stage, emit<3>)
