// Huffman decoding of one stream by many threads at once.
//
// Where a code begins is known only once everything before it is decoded. But Huffman codes synchronise themselves: a
// decoder that begins anywhere soon falls in step with one that began at the start. So every thread decodes its own
// subsequence from a guess, and again from where its predecessor ended, as long as that changes; when nothing changes,
// all of them together are the one sequential decoder. A file for which that takes long is slow, never wrong.
// (Weissenberger and Schmidt, Massively Parallel Huffman Decoding on GPUs, ICPP 2018, and Accelerating JPEG
// Decompression on GPUs, HiPC 2021; Klein and Wiseman, Parallel Huffman Decoding with Applications to JPEG Files,
// The Computer Journal, 2003.)

#include "jpeg/symbols.h"

constexpr int EACH = 4;                       // DC coefficients in a row for a thread
static_assert(PIECE % 32 == 0 && SHORT_PIECE % 32 == 0 && PIECES > 1, "so no two threads are in the same place");

FUNCTION bool same(const Place& a, const Place& b) { return a.bit == b.bit && a.within == b.within; }

FUNCTION int end_of(const Picture& picture, int subsequence, int bits) {
    return lesser((subsequence + 1) * PIECES * picture.piece, bits);
}

// A walk of which only the blocks are counted.
struct Counting {
    static constexpr bool MANY = true, IN_PIECES = false;
    int blocks;

    MEMBER void block_done() { ++blocks; }
    MEMBER void padded(int) {}
    MEMBER void edge(int) {}
};

// Where a walk stands behind a piece of the stream, and how many blocks ended in the piece:
//   0-9 bits from where the piece begins | 10-15 zigzag index | 16-19 block of the period | 20-31 blocks
constexpr u32 STANDS = (1 << 20) - 1;

FUNCTION u32 packed_end(const Place& place, int start, int blocks) {
    return (place.bit - start) | (place.within & 63) << 10 | place.within >> 8 << 16 | blocks << 20;
}

FUNCTION Place end_of_piece(u32 end, int start) {
    return {static_cast<int>(start + (end & 1023)), static_cast<int>((end >> 16 & 15) << 8 | (end >> 10 & 63))};
}

// The same, with every piece's end noted.
struct Noting : Counting {
    static constexpr bool IN_PIECES = true;
    u32* end;
    int start;  // of the piece, in bits
    const Picture& picture;

    MEMBER void piece_done(Place place) {
        *end++ = packed_end(place, start, blocks);
        start += picture.piece;
        blocks = 0;
    }
};

// A block of threads brings its subsequences in step with each other. Each is walked from a guess, and then, from where
// the one before ended, piece by piece for as long as that comes to other places than before. What is left to be done
// is always handed to the first threads, so that whole warps have nothing to do: after one piece half of the threads
// are in step, after two thirds of them.
//
// A piece is in the list if what is noted of it may not be the walk from the end noted of the one before; when the list
// is empty, all of them are one walk. In a round all pieces of the list are equally far from the beginning of a
// subsequence, so nobody reads or writes what somebody else is at.
FUNCTION void synchronise(int block, const Picture& picture) {
    SHARED(Tables, tables);
    SHARED(u32, ends[THREADS * PIECES]);
    SHARED(u16, list[2][THREADS]);
    SHARED(int, count[3]);  // of the list in this round, in the next, and in the one after it
    const State state = state_of(picture);
    const int number = (block - picture.first_span) * THREADS, first = number * PIECES;
    const int pieces = lesser((state.bits + picture.piece - 1) / picture.piece - first, THREADS * PIECES);
    if (state.reason != SOUND || pieces <= 0) return;
    PHASE(t) {
        load_tables(picture, tables, t);
        if (t == 0) count[0] = (pieces - 1) / PIECES, count[1] = count[2] = 0;
    }
    PHASE(t) {
        const int begin = t * PIECES, stop = lesser(begin + PIECES, pieces);
        if (begin >= pieces) continue;
        if (t > 0) list[0][t - 1] = static_cast<u16>(begin);
        Noting noting = {{0}, ends + begin, (first + begin) * picture.piece, picture};
        const Place guess = {noting.start, 0};
        const Place end = walk(picture, tables, guess, end_of(picture, number + t, state.bits), noting);
        while (noting.end < ends + stop) noting.piece_done(end);  // the last symbol may reach beyond a whole one
    }
    for (int round = 0, now = 0; count[now] > 0; ++round) {
        const int next = now == 2 ? 0 : now + 1, later = next == 2 ? 0 : next + 1;
        PHASE(t) {
            if (t == 0) count[later] = 0;
            if (t >= count[now]) continue;
            const int i = list[round & 1][t], start = (first + i) * picture.piece;
            Counting counting = {0};
            const Place from = end_of_piece(ends[i - 1], start - picture.piece);
            const Place place = walk(picture, tables, from, lesser(start + picture.piece, state.bits), counting);
            const u32 before = ends[i], end = packed_end(place, start, counting.blocks);
            ends[i] = end;
            if (((before ^ end) & STANDS) && i + 1 < pieces)
                list[(round + 1) & 1][atomicAdd(&count[next], 1)] = static_cast<u16>(i + 1);
        }
        now = next;
    }
    PHASE(t) {
        const int begin = t * PIECES, stop = lesser(begin + PIECES, pieces);
        if (begin >= pieces) continue;
        int blocks = 0;
        UNROLL for (int i = 0; i < PIECES; ++i) blocks += begin + i < stop ? ends[begin + i] >> 20 : 0;
        const Place end = end_of_piece(ends[stop - 1], (first + stop - 1) * picture.piece);
        reinterpret_cast<Span*>(picture.spans)[number + t] = {end, blocks, 0};
    }
}

// The same for what the blocks of threads made of a picture: each thread takes one of them, and corrects it from where
// the one before ends up to where they fall in step. Then the blocks before every subsequence are counted.
FUNCTION void join(int, const Picture& picture) {
    SHARED(Tables, tables);
    SHARED(int, sums[2][THREADS]);
    SHARED(int, before);
    SHARED(int, changed);
    OWNED(Place, from);
    OWNED(Place, next);
    const State state = state_of(picture);
    if (state.reason != SOUND) return;
    Span* spans = reinterpret_cast<Span*>(picture.spans);
    const int size = PIECES * picture.piece;
    const int count = (state.bits + size - 1) / size, parts = (count + THREADS - 1) / THREADS;
    PHASE(t) {
        load_tables(picture, tables, t);
        if (t == 0) before = changed = 0;
    }
    int round = 0;
    for (int base = 1; base < parts; base += THREADS) {
        PHASE(t) OWN(from, t) = {(base + t) * THREADS * size, 0};
        do {
            ++round;
            PHASE(t) OWN(next, t) = base + t < parts ? spans[(base + t) * THREADS - 1].end : OWN(from, t);
            PHASE(t) {
                if (same(OWN(next, t), OWN(from, t))) continue;
                Place place = OWN(from, t) = OWN(next, t);
                const int start = (base + t) * THREADS, stop = lesser(start + THREADS, count);
                for (int i = start; i < stop; ++i) {
                    Counting counting = {0};
                    place = walk(picture, tables, place, end_of(picture, i, state.bits), counting);
                    const bool in_step = same(place, spans[i].end);
                    spans[i] = {place, counting.blocks, 0};
                    if (in_step) break;
                    if (i == stop - 1) atomicMax(&changed, round);
                }
            }
        } while (changed == round);
    }
    for (int first = 0; first < count; first += THREADS) {
        PHASE(t) sums[0][t] = first + t < count ? spans[first + t].blocks : 0;
        prefix_sums(sums);
        PHASE(t) if (first + t < count) spans[first + t].first = before + (t > 0 ? sums[0][t - 1] : 0);
        PHASE(t) if (t == 0) before += sums[0][THREADS - 1];
    }
    PHASE(t) if (t == 0 && before != picture.mcus * picture.slots) flag(picture, BAD_LENGTH);
}

// A walk along the true symbols, which are checked, and kept where they are needed. What libjpeg would take with a
// warning, or not at all, is flagged: then none of the picture counts.
struct Keeping {
    static constexpr bool MANY = false, IN_PIECES = false;
    const Picture& picture;
    u32* dc;
    int target;       // number of the present block's first coefficient among those that are kept; -1: it is not needed
    int block;        // number of the present block in the stream
    int limit;        // blocks from this one on are neither kept nor checked
    int row, column;  // of the MCU
    int slot;         // of the present block in it
    bool clean;       // nothing but padding is left of the interval

    // At the block that `slot` says of the MCU.
    MEMBER void aim() {
        const bool needed = picture.mcu_top <= row && row < picture.mcu_bottom &&  //
                            picture.mcu_left <= column && column < picture.mcu_right;
        const int across = picture.mcu_right - picture.mcu_left;
        const int cell = (row - picture.mcu_top) * across + column - picture.mcu_left;
        target = needed ? (cell * picture.slots + slot) * BLOCK : -1;  // a picture has fewer than 2^31
    }

    MEMBER bool symbol(int index, u32 entry, u32 bits) {
        const int advance = entry >> 16 & INDEX, size = entry >> SIZE & 15, taken = entry >> (16 + TAKEN);
        const int at = index + advance - 1;  // an end of block comes to the next block as well, but by itself
        if (block >= limit || (at ^ advance) & END_OF_BLOCK) {
            if (block < limit) flag(picture, BAD_CODE);
            else if (limit == picture.mcus * picture.slots) flag(picture, BAD_LENGTH);  // more than padding is left
            return false;
        }
        const int value = extended(bits << (taken - size), size);
        if (index == 0) dc[block] = static_cast<u32>(value);
        if (index > 0 && size > 0 && target >= 0)
            reinterpret_cast<short*>(picture.coefficients)[target + at] = static_cast<short>(value);
        return true;
    }

    // Bits that are no code.
    MEMBER bool no_code() {
        if (block >= limit) return symbol(0, 0, 0);
        flag(picture, BAD_CODE);
        return false;
    }

    MEMBER void block_done() {
        ++block;
        target += target >= 0 ? BLOCK : 0;
        if (++slot < picture.slots) return;
        slot = 0;
        if (++column == picture.mcu_columns) {
            column = 0;
            ++row;
        }
        aim();
    }

    MEMBER void padded(int) { clean = true; }

    MEMBER void edge(int interval) {
        const int mcus = lesser(static_cast<i64>(interval + 1) * picture.restart, static_cast<i64>(picture.mcus));
        if (!clean || block != mcus * picture.slots) {
            flag(picture, BAD_LENGTH);
            limit = 0;
        }
        clean = false;
    }
};

FUNCTION void keep_coefficients(int block, const Picture& picture) {
    SHARED(Tables, tables);
    const State state = state_of(picture);
    const int first = (block - picture.first_span) * THREADS;
    const Span* spans = reinterpret_cast<const Span*>(picture.spans);
    SHARED(int, reason);
    if (!is_sound(picture, reason)) return;  // the tables may not even have been made
    PHASE(t) load_tables(picture, tables, t);
    PHASE(t) {
        const int i = first + t;
        if (i * PIECES * picture.piece >= state.bits) continue;
        const Place from = i > 0 ? spans[i - 1].end : Place{0, 0};
        const int number = spans[i].first, mcu = number / picture.slots;
        const int limit = picture.walked * picture.slots;
        const bool in_step = number % picture.period == from.within >> 8;  // or something is flagged
        if (number >= limit || !in_step) continue;
        const int row = mcu / picture.mcu_columns;
        Keeping keeping = {picture, reinterpret_cast<u32*>(picture.dc), -1, number, limit, row,
                           mcu - row * picture.mcu_columns, number - mcu * picture.slots, false};
        keeping.aim();
        walk(picture, tables, from, end_of(picture, i, state.bits), keeping);
    }
}

// A block of threads for each component: differences of DC coefficients to their sums (T.81 F.2.1.3.1).
FUNCTION void sum_differences(int block, const Picture& picture) {
    SHARED(u32, sums[2][THREADS]);
    SHARED(u32, before);
    SHARED(int, reason);
    if (block % COMPONENTS >= component_count(picture) || !is_sound(picture, reason)) return;
    const Component& component = picture.components[block % COMPONENTS];
    u32* dc = reinterpret_cast<u32*>(picture.dc);
    const int in_mcu = component.h * component.v;
    const int count = picture.walked * in_mcu;
    PHASE(t) if (t == 0) before = 0;
    for (int first = 0; first < count; first += THREADS * EACH) {
        PHASE(t) {
            sums[0][t] = 0;
            for (int i = first + t * EACH; i < lesser(first + (t + 1) * EACH, count); ++i)
                sums[0][t] += dc[i / in_mcu * picture.slots + component.slot + i % in_mcu];
        }
        prefix_sums(sums);
        PHASE(t) {
            u32 sum = before + (t > 0 ? sums[0][t - 1] : 0);
            for (int i = first + t * EACH; i < lesser(first + (t + 1) * EACH, count); ++i) {
                u32& place = dc[i / in_mcu * picture.slots + component.slot + i % in_mcu];
                place = sum += place;
            }
        }
        PHASE(t) {
            if (t == 0) before += sums[0][THREADS - 1];
            for (int i = first + t * EACH; i < lesser(first + (t + 1) * EACH, count); ++i) {
                const int value = dc_value(picture, component, i / in_mcu, component.slot + i % in_mcu);
                if (value <= -DC_LIMIT || value >= DC_LIMIT) flag(picture, DC_RANGE);
            }
        }
    }
}

KERNEL(jpeg_synchronise, Picture, synchronise)
KERNEL(jpeg_join, Picture, join)
KERNEL(jpeg_coefficients, Picture, keep_coefficients)
KERNEL(jpeg_dc, Picture, sum_differences)
