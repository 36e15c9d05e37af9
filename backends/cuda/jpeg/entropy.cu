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

constexpr int EACH = 4;  // DC coefficients in a row for a thread

FUNCTION bool same(const Place& a, const Place& b) { return a.bit == b.bit && a.within == b.within; }

FUNCTION int end_of(int subsequence, int bits) { return lesser((subsequence + 1) * SUBSEQUENCE, bits); }

// Threads copy the tables that a picture uses to where they can be read quickly.
FUNCTION void load_tables(const Picture& picture, Table* tables, int t) {
    constexpr int WORDS = sizeof(Table) / sizeof(u32);
    for (int number = 0; number < TABLES; ++number) {
        if (picture.huffman[number] == 0) continue;
        const u32* source = reinterpret_cast<const u32*>(picture.tables) + number * WORDS;
        u32* target = reinterpret_cast<u32*>(tables + number);
        for (int i = t; i < WORDS; i += THREADS) target[i] = source[i];
    }
}

// A walk of which only the blocks are counted.
struct Counting {
    int blocks;

    MEMBER bool symbol(int, u32, u32) { return true; }
    MEMBER void block_done() { ++blocks; }
    MEMBER void edge(int, bool) {}
};

// A block of threads brings its subsequences in step with each other. After the first two rounds few of them change;
// those are handed to neighbouring threads, so that whole warps have nothing to do.
FUNCTION void synchronise(int block, const Picture& picture) {
    SHARED(Table, tables[TABLES]);
    SHARED(Place, starts[THREADS]);
    SHARED(Place, ends[THREADS]);
    SHARED(int, blocks[THREADS]);
    SHARED(u8, changed[THREADS]);  // numbers of those whose start is another one
    SHARED(int, count[2]);         // how many, in this round and the next
    const State state = state_of(picture);
    const int first = (block - picture.first_span) * THREADS;
    if (state.reason != SOUND || first >= (state.bits + SUBSEQUENCE - 1) / SUBSEQUENCE) return;
    PHASE(t) {
        load_tables(picture, tables, t);
        if (t == 0) count[0] = count[1] = 0;
    }
    PHASE(t) {
        Counting counting = {0};
        starts[t] = {(first + t) * SUBSEQUENCE, 0};
        ends[t] = walk(picture, tables, starts[t], end_of(first + t, state.bits), counting);
        blocks[t] = counting.blocks;
    }
    for (int now = 0;; now ^= 1) {
        PHASE(t) {
            const bool beyond = end_of(first + t, state.bits) <= (first + t) * SUBSEQUENCE;  // the stream's end
            if (t == 0 || beyond || same(starts[t], ends[t - 1])) continue;
            starts[t] = ends[t - 1];
            changed[atomicAdd(&count[now], 1)] = static_cast<u8>(t);
        }
        if (count[now] == 0) break;
        PHASE(t) {
            if (t == 0) count[now ^ 1] = 0;
            if (t >= count[now]) continue;
            const int i = changed[t];
            Counting counting = {0};
            ends[i] = walk(picture, tables, starts[i], end_of(first + i, state.bits), counting);
            blocks[i] = counting.blocks;
        }
    }
    PHASE(t) reinterpret_cast<Span*>(picture.spans)[first + t] = {ends[t], blocks[t], 0};
}

// The same for what the blocks of threads made of a picture: each thread takes one of them, and corrects it from where
// the one before ends up to where they fall in step. Then the blocks before every subsequence are counted.
FUNCTION void join(int, const Picture& picture) {
    SHARED(Table, tables[TABLES]);
    SHARED(int, sums[2][THREADS]);
    SHARED(int, before);
    SHARED(int, changed);
    OWNED(Place, from);
    OWNED(Place, next);
    const State state = state_of(picture);
    if (state.reason != SOUND) return;
    Span* spans = reinterpret_cast<Span*>(picture.spans);
    const int count = (state.bits + SUBSEQUENCE - 1) / SUBSEQUENCE, parts = (count + THREADS - 1) / THREADS;
    PHASE(t) {
        load_tables(picture, tables, t);
        if (t == 0) before = changed = 0;
    }
    int round = 0;
    for (int base = 1; base < parts; base += THREADS) {
        PHASE(t) OWN(from, t) = {(base + t) * THREADS * SUBSEQUENCE, 0};
        do {
            ++round;
            PHASE(t) OWN(next, t) = base + t < parts ? spans[(base + t) * THREADS - 1].end : OWN(from, t);
            PHASE(t) {
                if (same(OWN(next, t), OWN(from, t))) continue;
                Place place = OWN(from, t) = OWN(next, t);
                const int start = (base + t) * THREADS, stop = lesser(start + THREADS, count);
                for (int i = start; i < stop; ++i) {
                    Counting counting = {0};
                    place = walk(picture, tables, place, end_of(i, state.bits), counting);
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
    const Picture& picture;
    u32* dc;
    short* target;    // the coefficients of the present block; null: not needed
    int block;        // number of the present block in the stream
    int limit;        // blocks from this one on are neither kept nor checked
    int row, column;  // of the MCU
    int slot;         // of the present block in it

    // At the block that `slot` says of the MCU.
    MEMBER void aim() {
        const bool needed = picture.mcu_top <= row && row < picture.mcu_bottom &&  //
                            picture.mcu_left <= column && column < picture.mcu_right;
        const int across = picture.mcu_right - picture.mcu_left;
        const i64 cell = static_cast<i64>(row - picture.mcu_top) * across + column - picture.mcu_left;
        short* const kept = reinterpret_cast<short*>(picture.coefficients);
        target = needed ? kept + (cell * picture.slots + slot) * BLOCK : nullptr;
    }

    MEMBER bool symbol(int index, u32 entry, u32 bits) {
        if (block >= limit) {
            if (limit == picture.mcus * picture.slots) flag(picture, BAD_LENGTH);  // more than padding is left
            return false;
        }
        const int advance = entry >> ADVANCE & 127, size = entry >> SIZE, taken = entry & 31;
        if (advance != END_OF_BLOCK && index + advance > BLOCK) {
            flag(picture, BAD_CODE);
            return false;
        }
        int value = 0;
        if (size) {  // T.81 F.2.2.1 (EXTEND)
            value = static_cast<int>(bits << (taken - size) >> (32 - size));
            if (value < 1 << (size - 1)) value -= (1 << size) - 1;
        }
        if (index == 0) dc[block] = static_cast<u32>(value);
        else if (size && target) target[index + advance - 1] = static_cast<short>(value);
        return true;
    }

    MEMBER void block_done() {
        ++block;
        if (target) target += BLOCK;
        if (++slot < picture.slots) return;
        slot = 0;
        if (++column == picture.mcu_columns) {
            column = 0;
            ++row;
        }
        aim();
    }

    MEMBER void edge(int interval, bool clean) {
        const int mcus = lesser(static_cast<i64>(interval + 1) * picture.restart, static_cast<i64>(picture.mcus));
        if (clean && block == mcus * picture.slots) return;
        flag(picture, BAD_LENGTH);
        limit = 0;
    }
};

FUNCTION void keep_coefficients(int block, const Picture& picture) {
    SHARED(Table, tables[TABLES]);
    const State state = state_of(picture);
    const int first = (block - picture.first_span) * THREADS;
    const Span* spans = reinterpret_cast<const Span*>(picture.spans);
    SHARED(int, reason);
    if (!is_sound(picture, reason)) return;  // the tables may not even have been made
    PHASE(t) load_tables(picture, tables, t);
    PHASE(t) {
        const int i = first + t;
        if (i * SUBSEQUENCE >= state.bits) continue;
        const Place from = i > 0 ? spans[i - 1].end : Place{0, 0};
        const int number = spans[i].first, mcu = number / picture.slots;
        const int limit = lesser(picture.mcu_bottom * picture.mcu_columns, picture.mcus) * picture.slots;
        const bool in_step = number % picture.period == from.within >> 8;  // or something is flagged
        if (number >= limit || !in_step) continue;
        const int row = mcu / picture.mcu_columns;
        Keeping keeping = {picture, reinterpret_cast<u32*>(picture.dc), nullptr, number, limit, row,
                           mcu - row * picture.mcu_columns, number - mcu * picture.slots};
        keeping.aim();
        walk(picture, tables, from, end_of(i, state.bits), keeping);
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
    const int count = lesser(picture.mcu_bottom * picture.mcu_columns, picture.mcus) * in_mcu;
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
