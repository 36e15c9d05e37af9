// A tile's resampling: two weighted sums, the pixels between rounded to uint8 (Pillow, src/libImaging/Resample.c; ATen,
// UpSampleKernel.cpp). Axis `a` is summed first, for all inputs of axis `b` that the tile needs; that is `middle`,
// [inputs of b][tile's positions of a], in shared memory.
//
// Where no output has more than FEW taps, their coefficients are copied to shared memory, with zeros to the same number for
// all outputs, so that loops over taps have a fixed length. Elsewhere a tile walks along the input of its second sum in
// steps of DEPTH, so the room it takes does not depend on the scale.

#pragma once
#include "tile.h"

constexpr int FEW = 6;  // bilinear to a third of the size, bicubic to two thirds

// One order of the sums.
template <bool BY_ROWS> struct Order {
    static constexpr int LENGTH = BY_ROWS ? ROWS : COLUMNS, OTHER = BY_ROWS ? COLUMNS : ROWS;  // positions of `a`, `b`
    static constexpr int DEPTH = FEW / 2 * OTHER + 2 * FEW;  // inputs of `b` in a step: enough for FEW taps an output
    static constexpr int NEXT = LENGTH + GROUP;              // pixels of `middle` from input to input of `b`
    static constexpr int GROUPS = LENGTH / GROUP;
    static constexpr int EACH = GROUPS * OTHER / THREADS;    // groups of a thread
};
constexpr int MIDDLE = Order<false>::DEPTH * Order<false>::NEXT;
static_assert(MIDDLE >= Order<true>::DEPTH * Order<true>::NEXT, "there is room for both");

struct alignas(16) Coefficients { int of[(FEW + 3) / 4 * 4]; };

// What a tile's outputs along one axis are made of, each of as many inputs.
struct Few {
    Coefficients coefficients[LONGEST];
    int start[LONGEST];
};

template <int C> struct Sums { int of[GROUP][C]; };

template <int C> FUNCTION Pixel<C> finished(const int (&sums)[C], int bits) {
    int values[C];
    UNROLL for (int c = 0; c < C; ++c) values[c] = sums[c] >> bits;
    return clipped(values);
}

// Positions up to the last group that has one.
FUNCTION int in_groups(int count) { return (count + GROUP - 1) & -GROUP; }

template <int C> FUNCTION void begin(Sums<C>* sums, int bits) {
    UNROLL for (int p = 0; p < GROUP; ++p)
        UNROLL for (int c = 0; c < C; ++c) sums->of[p][c] = 1 << (bits - 1);
}

template <int C> FUNCTION void add(Sums<C>* sums, int coefficient, const Group<Pixel<C>>& pixels) {
    UNROLL for (int p = 0; p < GROUP; ++p)
        UNROLL for (int c = 0; c < C; ++c) sums->of[p][c] += coefficient * level(pixels.of[p], c);
}

// A thread's group lies along `a`.
template <int C, bool BY_ROWS>
FUNCTION void finish(const Sums<C>& sums, int bits, int i, int j, Pixel<C>* done) {
    Group<Pixel<C>> pixels;
    UNROLL for (int p = 0; p < GROUP; ++p) pixels.of[p] = finished<C>(sums.of[p], bits);
    if (!BY_ROWS) *group_at(done + j * PITCH + i) = pixels;
    else UNROLL for (int p = 0; p < GROUP; ++p) done[(i + p) * PITCH + j] = pixels.of[p];
}

// -- few taps ------------------------------------------------------------------------------------------------------

FUNCTION int few_taps(const Shown& shown) { return greater(shown.most, 2); }

FUNCTION bool is_few(const Shown& shown) { return shown.most <= FEW && shown.high - shown.low >= 2; }

// The coefficients of output `i`; where it needs fewer pixels than others, those within what the tile is made of.
FUNCTION void copy_coefficients(const Axis& axis, const Shown& shown, bool backwards, int i, Few* few) {
    const int taps = few_taps(shown), tap = shown.tap[i];
    const int start = greater(lesser(tap, shown.high - taps), shown.low);
    const int* coefficient = reinterpret_cast<const int*>(axis.coefficients) + (shown.code[i] - axis.first);
    coefficient += static_cast<i64>(start - tap) * axis.count;
    few->start[i] = start;
    few->coefficients[i] = {};
    int* at = few->coefficients[i].of + (backwards ? taps - 1 : 0);  // sums of integers do not mind their order
    for (int which = start - tap; which < start - tap + taps; ++which) {
        if (0 <= which && which < shown.taps[i]) *at = read(coefficient);
        coefficient += axis.count;
        at += backwards ? -1 : 1;
    }
}

// A pixel that is the sum of N, each `apart` bytes from the one before.
template <int C, int N> FUNCTION Pixel<C> few_sum(const u8* at, i64 apart, const Coefficients& coefficients, int bits) {
    int sums[C];
    UNROLL for (int c = 0; c < C; ++c) sums[c] = 1 << (bits - 1);
    UNROLL for (int k = 0; k < N; ++k)
        UNROLL for (int c = 0; c < C; ++c) sums[c] += coefficients.of[k] * read(at + k * apart + c);
    return finished<C>(sums, bits);
}

// Lanes lie along the columns, which are the outputs of `a` or (BY_ROWS) the inputs of `b`.
template <int C, int N, bool BY_ROWS>
FUNCTION void few_first(const Pass& pass, const Axis& a, const Axis& b, const Few& few, const Shown& of_a,
                        const Shown& of_b, u32 t, Pixel<C>* middle) {
    constexpr int NEXT = Order<BY_ROWS>::NEXT;
    const int lane = t % WARP, row = t / WARP, bits = of_a.bits, inputs = of_b.high - of_b.low;
    const u8* first = reinterpret_cast<const u8*>(pass.source) + pass.origin;
    first += (of_b.low + (BY_ROWS ? lane : row)) * b.stride;
    if (BY_ROWS) {
        for (int i = row; i < in_groups(of_a.count); i += LANES) {
            const Coefficients coefficients = few.coefficients[i];
            const u8* at = first + few.start[i] * a.stride;
            for (int k = lane; k < inputs; k += WARP) {
                middle[k * NEXT + i] = few_sum<C, N>(at, a.stride, coefficients, bits);
                at += WARP * b.stride;
            }
        }
    } else {
        const Coefficients coefficients = few.coefficients[lane];
        const i64 next = LANES * b.stride;
        const u8* at = first + static_cast<i64>(a.stride < 0 ? 1 - N - few.start[lane] : few.start[lane]) * C;
        TWICE for (int k = row; k < inputs; k += LANES) {
            middle[k * NEXT + lane] = few_sum<C, N>(at, C, coefficients, bits);
            at += next;
        }
    }
}

template <int C, int N, bool BY_ROWS>
FUNCTION void few_second(const Few& few, const Shown& of_a, const Shown& of_b, u32 t, const Pixel<C>* middle,
                         Pixel<C>* done) {
    using Is = Order<BY_ROWS>;
    const int i = t % Is::GROUPS * GROUP, bits = of_b.bits;
    if (i >= of_a.count) return;
    for (int j = t / Is::GROUPS; j < of_b.count; j += THREADS / Is::GROUPS) {
        const Coefficients coefficients = few.coefficients[j];
        const Pixel<C>* at = middle + (few.start[j] - of_b.low) * Is::NEXT + i;
        Sums<C> sums;
        begin(&sums, bits);
        UNROLL for (int k = 0; k < N; ++k) add(&sums, coefficients.of[k], *group_at(at + k * Is::NEXT));
        finish<C, BY_ROWS>(sums, bits, i, j, done);
    }
}

// A function for so many taps.
#define BY_TAPS(taps, sums, ...)                                 \
    switch (taps) {                                              \
        case 2: sums<C, 2, BY_ROWS>(__VA_ARGS__); break;         \
        case 3: sums<C, 3, BY_ROWS>(__VA_ARGS__); break;         \
        case 4: sums<C, 4, BY_ROWS>(__VA_ARGS__); break;         \
        case 5: sums<C, 5, BY_ROWS>(__VA_ARGS__); break;         \
        default: sums<C, 6, BY_ROWS>(__VA_ARGS__);               \
    }

template <int C, bool BY_ROWS>
FUNCTION void resample_few(const Pass& pass, const Axis& a, const Axis& b, const Shown& of_a, const Shown& of_b,
                           Few (&few)[2], Pixel<C>* middle, Pixel<C>* done) {
    PHASE(t) {
        constexpr int LENGTH = Order<BY_ROWS>::LENGTH, OTHER = Order<BY_ROWS>::OTHER;
        if (t < LENGTH) copy_coefficients(a, of_a, !BY_ROWS && a.stride < 0, t, &few[0]);
        else if (t < LENGTH + OTHER) copy_coefficients(b, of_b, false, t - LENGTH, &few[1]);
    }
    PHASE(t) { BY_TAPS(few_taps(of_a), few_first, pass, a, b, few[0], of_a, of_b, t, middle) }
    PHASE(t) { BY_TAPS(few_taps(of_b), few_second, few[1], of_a, of_b, t, middle, done) }
}

// -- any number of taps --------------------------------------------------------------------------------------------

// What one output of the first axis is made of, for any input of the second one.
struct Line {
    const u8* first;    // the first tap of input 0
    const int* coefficient;  // the first tap's
    int taps;
    i64 apart, next;    // bytes from tap to tap, coefficients likewise
};

template <int C, bool BY_ROWS> FUNCTION Line line_of(const Pass& pass, const Axis& a, const Shown& of_a, int i) {
    Line line;
    line.taps = of_a.taps[i];
    line.first = reinterpret_cast<const u8*>(pass.source) + pass.origin + of_a.tap[i] * a.stride;
    line.coefficient = reinterpret_cast<const int*>(a.coefficients) + (of_a.code[i] - a.first);
    line.apart = a.stride;
    line.next = a.count;
    if (BY_ROWS) return line;
    if (a.stride < 0) {  // sums of integers do not mind their order
        line.first += (line.taps - 1) * line.apart;
        line.coefficient += (line.taps - 1) * line.next;
        line.next = -line.next;
    }
    line.apart = C;
    return line;
}

// The first sums of a line for ACROSS inputs of the second axis, which share its coefficients.
template <int C, int ACROSS>
FUNCTION void line_sums(const Line& line, const u8* (&at)[ACROSS], int bits, Pixel<C> (&found)[ACROSS]) {
    int sums[ACROSS][C];
    UNROLL for (int n = 0; n < ACROSS; ++n)
        UNROLL for (int c = 0; c < C; ++c) sums[n][c] = 1 << (bits - 1);
    const int* coefficient = line.coefficient;
    TWICE for (int tap = line.taps; tap > 0; --tap) {
        const int factor = read(coefficient);
        coefficient += line.next;
        UNROLL for (int n = 0; n < ACROSS; ++n) {
            UNROLL for (int c = 0; c < C; ++c) sums[n][c] += factor * read(at[n] + c);
            at[n] += line.apart;
        }
    }
    UNROLL for (int n = 0; n < ACROSS; ++n) found[n] = finished<C>(sums[n], bits);
}

// The first sums of one step, to `middle`, for the inputs `from` .. `from + DEPTH - 1` of `b`; lanes as in few_first.
template <int C, bool BY_ROWS>
FUNCTION void first_sums(const Pass& pass, const Axis& a, const Axis& b, const Shown& of_a, const Shown& of_b,
                         int from, u32 t, Pixel<C>* middle) {
    using Is = Order<BY_ROWS>;
    constexpr int ACROSS = 2, APART = BY_ROWS ? WARP : LANES;
    const int lane = t % WARP, row = t / WARP, bits = of_a.bits, inputs = lesser(of_b.high - from, Is::DEPTH);
    for (int i = BY_ROWS ? row : lane; i < in_groups(of_a.count); i += BY_ROWS ? LANES : WARP) {
        const Line line = line_of<C, BY_ROWS>(pass, a, of_a, i);
        const u8* first = line.first + from * b.stride;
        for (int k = BY_ROWS ? lane : row; k < inputs; k += APART * ACROSS) {
            const u8* at[ACROSS];
            UNROLL for (int n = 0; n < ACROSS; ++n) at[n] = first + lesser(k + APART * n, inputs - 1) * b.stride;
            Pixel<C> found[ACROSS];
            line_sums<C>(line, at, bits, found);
            UNROLL for (int n = 0; n < ACROSS; ++n)
                if (k + APART * n < inputs) middle[(k + APART * n) * Is::NEXT + i] = found[n];
        }
    }
}

// Add one step's first sums to a thread's second ones: at `b`'s shown positions.
template <int C, bool BY_ROWS>
FUNCTION void second_sums(const Axis& b, const Shown& of_a, const Shown& of_b, int from, u32 t,
                          const Pixel<C>* middle, Sums<C> (&sums)[Order<BY_ROWS>::EACH]) {
    using Is = Order<BY_ROWS>;
    if (t % Is::GROUPS * GROUP >= of_a.count) return;
    UNROLL for (int n = 0; n < Is::EACH; ++n) {
        const int j = (t + n * THREADS) / Is::GROUPS, tap = of_b.tap[j];
        const int start = greater(tap, from), stop = lesser(tap + of_b.taps[j], from + Is::DEPTH);
        const int* coefficient = reinterpret_cast<const int*>(b.coefficients) + (of_b.code[j] - b.first);
        coefficient += static_cast<i64>(start - tap) * b.count;
        const Pixel<C>* at = middle + (start - from) * Is::NEXT + t % Is::GROUPS * GROUP;
        TWICE for (int k = start; k < stop; ++k) {
            add(&sums[n], read(coefficient), *group_at(at));
            coefficient += b.count;
            at += Is::NEXT;
        }
    }
}

template <int C, bool BY_ROWS>
FUNCTION void resample(const Pass& pass, const Shown& rows, const Shown& columns, Few (&few)[2], Pixel<C>* middle,
                       Pixel<C>* done) {
    const Axis& a = BY_ROWS ? pass.rows : pass.columns;
    const Axis& b = BY_ROWS ? pass.columns : pass.rows;
    const Shown& of_a = BY_ROWS ? rows : columns;
    const Shown& of_b = BY_ROWS ? columns : rows;
    using Is = Order<BY_ROWS>;
    if (is_few(of_a) && is_few(of_b) && of_b.high - of_b.low <= Is::DEPTH) {
        resample_few<C, BY_ROWS>(pass, a, b, of_a, of_b, few, middle, done);
        return;
    }
    struct Own { Sums<C> sums[Is::EACH]; };
    OWNED(Own, own);
    PHASE(t) {
        UNROLL for (int n = 0; n < Is::EACH; ++n) begin(&OWN(own, t).sums[n], of_b.bits);
    }
    for (int from = of_b.low; from < of_b.high; from += Is::DEPTH) {
        PHASE(t) { first_sums<C, BY_ROWS>(pass, a, b, of_a, of_b, from, t, middle); }
        PHASE(t) { second_sums<C, BY_ROWS>(b, of_a, of_b, from, t, middle, OWN(own, t).sums); }
    }
    PHASE(t) {
        UNROLL for (int n = 0; n < Is::EACH; ++n) {
            const int i = t % Is::GROUPS * GROUP, j = (t + n * THREADS) / Is::GROUPS;
            finish<C, BY_ROWS>(OWN(own, t).sums[n], of_b.bits, i, j, done);
        }
    }
}
