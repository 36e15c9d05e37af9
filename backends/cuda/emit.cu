// One fused pass: view, resample, window, value table, layout and dtype. One block makes one tile of one image.
//
// Resampling is two weighted sums, the pixels between rounded to uint8 (Pillow, src/libImaging/Resample.c; ATen,
// UpSampleKernel.cpp). A tile walks along the input of its second sum in steps of DEPTH: the first sum is made of
// that stretch, for the tile's positions of the first axis, and added to the second sums. So the room it takes does
// not depend on the scale, and every input pixel is read as often as there are sums it is part of.

#include "stage.h"

constexpr int TILE = 32;   // rows and columns of a tile
constexpr int DEPTH = 64;  // input positions of a step
constexpr int LANES = THREADS / WARP;
constexpr int PIXELS = TILE * TILE / THREADS;  // of a tile, for each thread

static_assert(TILE == WARP && DEPTH % WARP == 0 && TILE % LANES == 0, "lanes lie along columns");

// One pixel in shared memory, read and written at once.
template <int C> struct alignas(C == 3 ? 4 : C) Pixel { u8 value[C == 3 ? 4 : C]; };

// The tile's positions along one axis.
struct Shown {
    int code[TILE];               // position or fill code
    int tap[TILE], taps[TILE];    // what it is made of; no taps where it is a fill or lies outside
    int low, high;                // the positions from `low` to before `high` cover all taps
};

FUNCTION int code_at(const Axis& axis, int p) {
    return axis.window ? reinterpret_cast<const int*>(axis.window)[p] : axis.start + axis.step * p;
}

FUNCTION void look(const Axis& axis, int first, int length, int i, bool resampled, Shown* shown) {
    shown->tap[i] = shown->taps[i] = 0;
    shown->code[i] = -1;
    if (first + i >= length) return;
    const int code = shown->code[i] = code_at(axis, first + i);
    if (code < 0 || !resampled) return;
    const int* bounds = reinterpret_cast<const int*>(axis.bounds);
    const int tap = bounds[code - axis.first], taps = bounds[axis.count + code - axis.first];
    shown->tap[i] = tap;
    shown->taps[i] = taps;
    atomicMin(&shown->low, tap);
    atomicMax(&shown->high, tap + taps);
}

template <int C> FUNCTION Pixel<C> load(const u8* at) {
    Pixel<C> pixel = {};
    UNROLL for (int c = 0; c < C; ++c) pixel.value[c] = at[c];
    return pixel;
}

template <int C> FUNCTION Pixel<C> finished(const int* sums, int bits) {
    Pixel<C> pixel = {};
    UNROLL for (int c = 0; c < C; ++c) pixel.value[c] = static_cast<u8>(clip8(sums[c] >> bits));
    return pixel;
}

template <int C> struct Sums { int of[PIXELS][C]; };

// The first sums of one step: of `a`'s shown positions, for input positions k .. k + DEPTH - 1 of `b`, to `middle`.
template <int C, bool BY_ROWS>
FUNCTION void first_sums(const Stage& stage, const Axis& a, const Axis& b, const Shown& of_a, const Shown& of_b,
                         int from, int t, Pixel<C>* middle) {
    // lanes lie along the columns, which are the outputs of `a` or (BY_ROWS) the inputs of `b`
    constexpr int ACROSS = BY_ROWS ? DEPTH / WARP : 4;     // inputs of `b` at a time, which share a weight
    constexpr int APART = BY_ROWS ? WARP : LANES;
    constexpr int STEPS = BY_ROWS ? TILE / LANES : DEPTH / LANES / ACROSS;
    const int lane = t % WARP, row = t / WARP;
    const int bits = reinterpret_cast<const int*>(a.bounds)[2 * a.count];
    const u8* source = reinterpret_cast<const u8*>(stage.source) + stage.origin;
    for (int step = 0; step < STEPS; ++step) {
        const int i = BY_ROWS ? row + LANES * step : lane;
        const int k = BY_ROWS ? lane : row + APART * ACROSS * step;
        const int* weight = reinterpret_cast<const int*>(a.weights) + (of_a.code[i] - a.first);
        const u8* at = source + from * b.stride + of_a.tap[i] * a.stride;
        int offset[ACROSS], sums[ACROSS][C];
        UNROLL for (int n = 0; n < ACROSS; ++n) {
            const int inside = lesser(k + APART * n, of_b.high - 1 - from);  // beyond it nobody looks
            offset[n] = inside * static_cast<int>(b.stride);
            UNROLL for (int c = 0; c < C; ++c) sums[n][c] = 1 << (bits - 1);
        }
        TWICE for (int tap = of_a.taps[i]; tap > 0; --tap) {
            const int factor = *weight;
            weight += a.count;
            UNROLL for (int n = 0; n < ACROSS; ++n) {
                UNROLL for (int c = 0; c < C; ++c) sums[n][c] += factor * at[offset[n] + c];
            }
            at += a.stride;
        }
        UNROLL for (int n = 0; n < ACROSS; ++n) {
            const int position = k + APART * n;
            middle[BY_ROWS ? i * DEPTH + position : position * TILE + i] = finished<C>(sums[n], bits);
        }
    }
}

// Add one step's first sums to the second ones: of `b`'s shown positions.
template <int C, bool BY_ROWS>
FUNCTION void second_sums(const Axis& b, const Shown& of_b, int from, int t, const Pixel<C>* middle, Sums<C>* sums) {
    const int x = t % WARP;
    UNROLL for (int n = 0; n < PIXELS; ++n) {
        const int y = t / WARP + LANES * n;
        const int i = BY_ROWS ? x : y, other = BY_ROWS ? y : x;
        const int first = of_b.tap[i], start = greater(first, from);
        const int stop = lesser(first + of_b.taps[i], from + DEPTH);
        const int* weight = reinterpret_cast<const int*>(b.weights) + (of_b.code[i] - b.first);
        TWICE for (int k = start; k < stop; ++k) {
            const int factor = weight[static_cast<i64>(k - first) * b.count];
            const Pixel<C> pixel = middle[BY_ROWS ? other * DEPTH + k - from : (k - from) * TILE + other];
            UNROLL for (int c = 0; c < C; ++c) sums->of[n][c] += factor * pixel.value[c];
        }
    }
}

template <int C, bool BY_ROWS>
FUNCTION void resample(const Stage& stage, const Shown& rows, const Shown& columns, Pixel<C>* middle, Pixel<C>* done) {
    const Axis& a = BY_ROWS ? stage.rows : stage.columns;
    const Axis& b = BY_ROWS ? stage.columns : stage.rows;
    const Shown& of_a = BY_ROWS ? rows : columns;
    const Shown& of_b = BY_ROWS ? columns : rows;
    const int bits = reinterpret_cast<const int*>(b.bounds)[2 * b.count];
    OWNED(Sums<C>, sums);
    PHASE(t) {
        for (int n = 0; n < PIXELS; ++n)
            for (int c = 0; c < C; ++c) OWN(sums, t).of[n][c] = 1 << (bits - 1);
    }
    for (int from = of_b.low; from < of_b.high; from += DEPTH) {
        PHASE(t) { first_sums<C, BY_ROWS>(stage, a, b, of_a, of_b, from, t, middle); }
        PHASE(t) { second_sums<C, BY_ROWS>(b, of_b, from, t, middle, &OWN(sums, t)); }
    }
    PHASE(t) {
        UNROLL for (int n = 0; n < PIXELS; ++n) done[t + THREADS * n] = finished<C>(OWN(sums, t).of[n], bits);
    }
}

// The tile's values, in the order in which they lie in the output; `table` is [C][256], or null for the levels.
template <int C, class T>
FUNCTION void write(const Stage& stage, int top, int left, int t, const Pixel<C>* done, const T* table) {
    const int height = lesser(TILE, stage.height - top), width = lesser(TILE, stage.width - left);
    T* target = reinterpret_cast<T*>(stage.target);
    if (stage.planar) {
        const int x = t % WARP;
        if (x >= width) return;
        UNROLL for (int c = 0; c < C; ++c) {
            for (int y = t / WARP; y < height; y += LANES) {
                const u8 level = done[y * TILE + x].value[c];
                const i64 place = (static_cast<i64>(c) * stage.height + top + y) * stage.width + left + x;
                target[place] = table ? table[c * 256 + level] : static_cast<T>(level);
            }
        }
        return;
    }
    for (int y = t / WARP; y < height; y += LANES) {
        T* row = target + (static_cast<i64>(top + y) * stage.width + left) * C;
        for (int i = t % WARP; i < width * C; i += WARP) {
            const u8 level = done[y * TILE + i / C].value[i % C];
            row[i] = table ? table[i % C * 256 + level] : static_cast<T>(level);
        }
    }
}

template <int C> FUNCTION void emit(int block, const Stage& stage) {
    const int tile = block - stage.first_block;
    const int top = tile / stage.across * TILE, left = tile % stage.across * TILE;
    SHARED(Shown, rows);
    SHARED(Shown, columns);
    SHARED(Pixel<C>, middle[TILE * DEPTH]);
    SHARED(Pixel<C>, done[TILE * TILE]);
    SHARED(u32, near[C * 256]);  // the table, where its values have up to 4 bytes

    PHASE(t) {
        if (t == 0) {
            rows.low = columns.low = 0x7fffffff;
            rows.high = columns.high = 0;
        }
        if (!stage.table || stage.itemsize > 4) continue;
        const u32* table = reinterpret_cast<const u32*>(stage.table);
        for (int i = t; i < C * 256 * stage.itemsize / 4; i += THREADS) near[i] = table[i];
    }
    PHASE(t) {
        const bool resampled = stage.mode != COPY;
        if (t < TILE) look(stage.rows, top, stage.height, t, resampled, &rows);
        else if (t < 2 * TILE) look(stage.columns, left, stage.width, t - TILE, resampled, &columns);
    }
    if (stage.mode == COLUMNS_FIRST) resample<C, false>(stage, rows, columns, middle, done);
    if (stage.mode == ROWS_FIRST) resample<C, true>(stage, rows, columns, middle, done);
    PHASE(t) {
        const u8* source = reinterpret_cast<const u8*>(stage.source) + stage.origin;
        for (int i = t; i < TILE * TILE; i += THREADS) {
            const int y = i / TILE, x = i % TILE;
            if (top + y >= stage.height || left + x >= stage.width) continue;
            const int row = rows.code[y], column = columns.code[x], code = lesser(row, column);
            if (code < 0)
                done[i] = load<C>(reinterpret_cast<const u8*>(stage.fills) + static_cast<i64>(-1 - code) * C);
            else if (stage.mode == COPY)
                done[i] = load<C>(source + row * stage.rows.stride + column * stage.columns.stride);
        }
    }
    PHASE(t) {
        const void* table = stage.table ? near : nullptr;
        switch (stage.itemsize) {
            case 1: write<C>(stage, top, left, t, done, static_cast<const u8*>(table)); break;
            case 2: write<C>(stage, top, left, t, done, static_cast<const u16*>(table)); break;
            case 4: write<C>(stage, top, left, t, done, static_cast<const u32*>(table)); break;
            default: write<C>(stage, top, left, t, done, reinterpret_cast<const u64*>(stage.table));
        }
    }
}

KERNEL(emit1, Stage, emit<1>)
KERNEL(emit3, Stage, emit<3>)
