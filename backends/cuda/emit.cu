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

// A pixel of C bytes in shared memory, read and written at once; the first channel is the lowest byte.
template <int C> struct Pixel;
template <> struct Pixel<1> { u8 word; };
template <> struct Pixel<3> { u32 word; };

template <int C> FUNCTION int level(Pixel<C> pixel, int c) { return byte_of(pixel.word, c); }

FUNCTION Pixel<1> clipped(const int (&values)[1]) { return {static_cast<u8>(packed(values[0], 0, 0))}; }
FUNCTION Pixel<3> clipped(const int (&values)[3]) { return {packed(values[0], values[1], values[2])}; }

// The tile's positions along one axis.
struct Shown {
    int code[TILE];               // position or fill code
    int tap[TILE], taps[TILE];    // what it is made of; no taps where it is a fill or lies outside
    int low, high;                // the positions from `low` to before `high` cover all taps
};

FUNCTION int code_at(const Axis& axis, int p) {
    return axis.window ? read(reinterpret_cast<const int*>(axis.window) + p) : axis.start + axis.step * p;
}

FUNCTION void look(const Axis& axis, int first, int length, int i, bool resampled, Shown* shown) {
    shown->tap[i] = shown->taps[i] = 0;
    shown->code[i] = -1;
    if (first + i >= length) return;
    const int code = shown->code[i] = code_at(axis, first + i);
    if (code < 0 || !resampled) return;
    const int* bounds = reinterpret_cast<const int*>(axis.bounds);
    bounds += code - axis.first;
    const int tap = read(bounds), taps = read(bounds + axis.count);
    shown->tap[i] = tap;
    shown->taps[i] = taps;
    atomicMin(&shown->low, tap);
    atomicMax(&shown->high, tap + taps);
}

template <int C> FUNCTION Pixel<C> load(const u8* at) {
    int values[C];
    UNROLL for (int c = 0; c < C; ++c) values[c] = read(at + c);
    return clipped(values);
}

template <int C> FUNCTION Pixel<C> looked_up(Pixel<C> pixel, const u8* levels) {
    int values[C];
    UNROLL for (int c = 0; c < C; ++c) values[c] = read(levels + 256 * c + level(pixel, c));
    return clipped(values);
}

template <int C> FUNCTION Pixel<C> finished(const int (&sums)[C], int bits) {
    int values[C];
    UNROLL for (int c = 0; c < C; ++c) values[c] = sums[c] >> bits;
    return clipped(values);
}

FUNCTION int bits_of(const Axis& axis) { return read(reinterpret_cast<const int*>(axis.bounds) + 2 * axis.count); }

template <int C> struct Sums { int of[PIXELS][C]; };

// What one output of the first axis is made of, for any input of the second one.
struct Line {
    const u8* first;    // the first tap of input 0
    const int* weight;  // the first tap's
    int taps;
    i64 apart, next;    // bytes from tap to tap, weights likewise
};

template <int C, bool BY_ROWS> FUNCTION Line line_of(const Stage& stage, const Axis& a, const Shown& of_a, int i) {
    Line line;
    line.taps = of_a.taps[i];
    line.first = reinterpret_cast<const u8*>(stage.source) + stage.origin + of_a.tap[i] * a.stride;
    line.weight = reinterpret_cast<const int*>(a.weights) + (of_a.code[i] - a.first);
    line.apart = a.stride;
    line.next = a.count;
    if (BY_ROWS) return line;
    if (a.stride < 0) {  // sums of integers do not mind their order
        line.first += (line.taps - 1) * line.apart;
        line.weight += (line.taps - 1) * line.next;
        line.next = -line.next;
    }
    line.apart = C;
    return line;
}

// The first sums of a line for ACROSS inputs of the second axis, which share its weights.
template <int C, int ACROSS>
FUNCTION void line_sums(const Line& line, const u8* (&at)[ACROSS], int bits, Pixel<C> (&found)[ACROSS]) {
    int sums[ACROSS][C];
    UNROLL for (int n = 0; n < ACROSS; ++n)
        UNROLL for (int c = 0; c < C; ++c) sums[n][c] = 1 << (bits - 1);
    const int* weight = line.weight;
    TWICE for (int tap = line.taps; tap > 0; --tap) {
        const int factor = read(weight);
        weight += line.next;
        UNROLL for (int n = 0; n < ACROSS; ++n) {
            UNROLL for (int c = 0; c < C; ++c) sums[n][c] += factor * read(at[n] + c);
            at[n] += line.apart;
        }
    }
    UNROLL for (int n = 0; n < ACROSS; ++n) found[n] = finished<C>(sums[n], bits);
}

// The first sums of one step, to `middle`: at `a`'s shown positions, for the inputs `from` .. `from + DEPTH - 1` of `b`.
// Lanes lie along the columns, which are the outputs of `a` or (BY_ROWS) the inputs of `b`.
template <int C, bool BY_ROWS>
FUNCTION void first_sums(const Stage& stage, const Axis& a, const Axis& b, const Shown& of_a, const Shown& of_b,
                         int from, int t, Pixel<C>* middle) {
    constexpr int ACROSS = 2, APART = BY_ROWS ? WARP : LANES;
    const int lane = t % WARP, row = t / WARP, bits = bits_of(a), inputs = of_b.high - from;
    const i64 stride = b.stride, start = from * stride;
    if (BY_ROWS) {
        if (lane >= inputs) return;
        for (int i = row; i < TILE; i += LANES) {
            const Line line = line_of<C, BY_ROWS>(stage, a, of_a, i);
            const u8* at[ACROSS];
            UNROLL for (int n = 0; n < ACROSS; ++n)  // beyond the inputs nobody looks
                at[n] = line.first + start + lesser(lane + APART * n, inputs - 1) * stride;
            Pixel<C> found[ACROSS];
            line_sums<C>(line, at, bits, found);
            UNROLL for (int n = 0; n < ACROSS; ++n) middle[i * DEPTH + lane + APART * n] = found[n];
        }
    } else {
        const Line line = line_of<C, BY_ROWS>(stage, a, of_a, lane);
        const u8* first = line.first + start;
        for (int k = row; k < DEPTH && k < inputs; k += APART * ACROSS) {
            const u8* at[ACROSS];
            UNROLL for (int n = 0; n < ACROSS; ++n) at[n] = first + lesser(k + APART * n, inputs - 1) * stride;
            Pixel<C> found[ACROSS];
            line_sums<C>(line, at, bits, found);
            UNROLL for (int n = 0; n < ACROSS; ++n) middle[(k + APART * n) * TILE + lane] = found[n];
        }
    }
}

// Add one step's first sums to the second ones: at `b`'s shown positions.
template <int C, bool BY_ROWS>
FUNCTION void second_sums(const Axis& b, const Shown& of_b, int from, int t, const Pixel<C>* middle, Sums<C>* sums) {
    constexpr int NEXT = BY_ROWS ? 1 : TILE;
    const int x = t % WARP;
    UNROLL for (int n = 0; n < PIXELS; ++n) {
        const int y = t / WARP + LANES * n;
        const int i = BY_ROWS ? x : y, other = BY_ROWS ? y : x;
        const int first = of_b.tap[i], start = greater(first, from);
        const int stop = lesser(first + of_b.taps[i], from + DEPTH);
        const int* weight = reinterpret_cast<const int*>(b.weights) + (of_b.code[i] - b.first);
        weight += static_cast<i64>(start - first) * b.count;
        const Pixel<C>* at = middle + (BY_ROWS ? other * DEPTH : other) + (start - from) * NEXT;
        TWICE for (int k = start; k < stop; ++k) {
            const int factor = read(weight);
            UNROLL for (int c = 0; c < C; ++c) sums->of[n][c] += factor * level(*at, c);
            weight += b.count;
            at += NEXT;
        }
    }
}

template <int C, bool BY_ROWS>
FUNCTION void resample(const Stage& stage, const Shown& rows, const Shown& columns, Pixel<C>* middle, Pixel<C>* done) {
    const Axis& a = BY_ROWS ? stage.rows : stage.columns;
    const Axis& b = BY_ROWS ? stage.columns : stage.rows;
    const Shown& of_a = BY_ROWS ? rows : columns;
    const Shown& of_b = BY_ROWS ? columns : rows;
    const int bits = bits_of(b);
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

// The tile's values, neighbours in the output by neighbouring threads; `table` is [C][256], or null for the levels.
template <int C, class T>
FUNCTION void write(const Stage& stage, int top, int left, int t, const Pixel<C>* done, const T* table) {
    const int height = lesser(TILE, stage.height - top), width = lesser(TILE, stage.width - left);
    const int lane = t % WARP, row = t / WARP;
    const i64 pitch = static_cast<i64>(stage.width) * (stage.planar ? 1 : C);
    T* target = reinterpret_cast<T*>(stage.target) + (top + row) * pitch;
    for (int j = 0; j < C; ++j) {
        const int value = lane + WARP * j;  // of a row of the tile, where channels are interleaved
        const int x = stage.planar ? lane : value / C, c = stage.planar ? j : value % C;
        if (x >= width) continue;
        T* at = target + (stage.planar ? c * stage.height * pitch + left + x : static_cast<i64>(left) * C + value);
        for (int y = row; y < height; y += LANES) {
            const int found = level(done[y * TILE + x], c);
            *at = table ? table[c * 256 + found] : static_cast<T>(found);
            at += LANES * pitch;
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
        for (int i = t; i < C * 256 * stage.itemsize / 4; i += THREADS) near[i] = read(table + i);
    }
    PHASE(t) {
        const bool resampled = stage.mode != COPY;
        if (t < TILE) look(stage.rows, top, stage.height, t, resampled, &rows);
        else if (t < 2 * TILE) look(stage.columns, left, stage.width, t - TILE, resampled, &columns);
    }
    if (stage.mode == COLUMNS_FIRST) resample<C, false>(stage, rows, columns, middle, done);
    if (stage.mode == ROWS_FIRST) resample<C, true>(stage, rows, columns, middle, done);
    if (stage.mode == COPY || stage.fills) {  // else all of it is resampled
        PHASE(t) {
            const u8* source = reinterpret_cast<const u8*>(stage.source) + stage.origin;
            for (int i = t; i < TILE * TILE; i += THREADS) {
                const int y = i / TILE, x = i % TILE;
                if (top + y >= stage.height || left + x >= stage.width) continue;
                const int row = rows.code[y], column = columns.code[x], code = lesser(row, column);
                if (code < 0)
                    done[i] = load<C>(reinterpret_cast<const u8*>(stage.fills) + static_cast<i64>(-1 - code) * C);
                else if (stage.mode == COPY) {
                    done[i] = load<C>(source + row * stage.rows.stride + column * stage.columns.stride);
                    if (stage.seen) done[i] = looked_up<C>(done[i], reinterpret_cast<const u8*>(stage.seen));
                }
            }
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
