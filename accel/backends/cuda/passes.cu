// One fused pass: view, resample, window, value table, layout and dtype. One block makes one tile of one image.

#include "resample.h"
#include "write.h"

// The value table, 16 bytes at a time.
struct alignas(16) Words { u32 of[4]; };

template <int C> FUNCTION void make_tile(int block, const Pass& pass) {
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
            const u32 number = block - pass.first_block, across = pass.across;
            const int top = number / across * ROWS, left = number % across * COLUMNS;
            begin(top, lesser(ROWS, pass.height - top), &rows);
            begin(left, lesser(COLUMNS, pass.width - left), &columns);
        }
        if (!pass.table || t >= C * 256 * pass.itemsize / 16 || pass.itemsize > 4) continue;
        near[t] = reinterpret_cast<const Words*>(pass.table)[t];
    }
    PHASE(t) {
        const bool resampled = pass.mode != COPY;
        if (t < ROWS) look(pass.rows, t, resampled, &rows);
        else if (t < ROWS + COLUMNS) look(pass.columns, t - ROWS, resampled, &columns);
    }
    if (pass.mode == COLUMNS_FIRST) resample<C, false>(pass, rows, columns, few, middle, done);
    if (pass.mode == ROWS_FIRST) resample<C, true>(pass, rows, columns, few, middle, done);
    if (pass.mode == COPY || rows.filled || columns.filled) {  // else all of it is resampled
        PHASE(t) {
            const u8* source = reinterpret_cast<const u8*>(pass.source) + pass.origin;
            const int x = t % COLUMNS;
            for (int y = t / COLUMNS; y < rows.count && x < columns.count; y += LANES) {
                const int row = rows.code[y], column = columns.code[x], code = lesser(row, column);
                Pixel<C>* at = done + y * PITCH + x;
                if (code < 0)
                    *at = load<C>(reinterpret_cast<const u8*>(pass.fills) + static_cast<i64>(-1 - code) * C);
                else if (pass.mode == COPY) {
                    *at = load<C>(source + row * pass.rows.stride + column * pass.columns.stride);
                    if (pass.input_lut) *at = looked_up<C>(*at, reinterpret_cast<const u8*>(pass.input_lut));
                }
            }
        }
    }
    PHASE(t) {
        switch (pass.itemsize) {
            case 1: write<C, u8>(pass, rows, columns, t, done, near); break;
            case 2: write<C, u16>(pass, rows, columns, t, done, near); break;
            case 4: write<C, u32>(pass, rows, columns, t, done, near); break;
            default: write<C, u64>(pass, rows, columns, t, done, reinterpret_cast<const void*>(pass.table));
        }
    }
}

KERNEL(pass1, Pass, make_tile<1>)
KERNEL(pass3, Pass, make_tile<3>)
