// One fused pass: view, resample, window, value table, layout and dtype. One block makes one tile of one image.

#include "resample.h"
#include "write.h"

// The value table, 16 bytes at a time.
struct alignas(16) Words { u32 of[4]; };

template <int C> FUNCTION void emit(int block, const Stage& stage) {
    SHARED(Shown, rows);
    SHARED(Shown, columns);
    SHARED(Few, few[2]);
    SHARED(Group<Pixel<C>>, sums[MIDDLE / GROUP]);
    SHARED(Group<Pixel<C>>, tile[ROWS * PITCH / GROUP]);
    SHARED(Words, near[C * 256 / 4]);  // the table, where its values have up to 4 bytes
    Pixel<C>* const middle = pixels_of(sums);
    Pixel<C>* const done = pixels_of(tile);

    PHASE(t) {
        if (t == 0) {
            const u32 number = block - stage.first_block, across = stage.across;
            const int top = number / across * ROWS, left = number % across * COLUMNS;
            begin(top, lesser(ROWS, stage.height - top), &rows);
            begin(left, lesser(COLUMNS, stage.width - left), &columns);
        }
        if (!stage.table || t >= C * 256 * stage.itemsize / 16 || stage.itemsize > 4) continue;
        near[t] = reinterpret_cast<const Words*>(stage.table)[t];
    }
    PHASE(t) {
        const bool resampled = stage.mode != COPY;
        if (t < ROWS) look(stage.rows, t, resampled, &rows);
        else if (t < ROWS + COLUMNS) look(stage.columns, t - ROWS, resampled, &columns);
    }
    if (stage.mode == COLUMNS_FIRST) resample<C, false>(stage, rows, columns, few, middle, done);
    if (stage.mode == ROWS_FIRST) resample<C, true>(stage, rows, columns, few, middle, done);
    if (stage.mode == COPY || rows.filled || columns.filled) {  // else all of it is resampled
        PHASE(t) {
            const u8* source = reinterpret_cast<const u8*>(stage.source) + stage.origin;
            const int x = t % COLUMNS;
            for (int y = t / COLUMNS; y < rows.count && x < columns.count; y += LANES) {
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
            case 1: write<C, u8>(stage, rows, columns, t, done, near); break;
            case 2: write<C, u16>(stage, rows, columns, t, done, near); break;
            case 4: write<C, u32>(stage, rows, columns, t, done, near); break;
            default: write<C, u64>(stage, rows, columns, t, done, reinterpret_cast<const void*>(stage.table));
        }
    }
}

KERNEL(emit1, Stage, emit<1>)
KERNEL(emit3, Stage, emit<3>)
