// Huffman symbols (T.81 annex C, F.2.2): the tables that look them up, and the loop over them that all passes share.

#pragma once
#include "jpeg/picture.h"

// Bits that one look-up resolves. Codes of AC coefficients are short and many: one look-up finds as many of them as it
// has bits for.
constexpr int DC_LOOK = 8, AC_LOOK = 11;
constexpr int LONGEST = 16;

// What a symbol does to the decoder, in 12 bits:
//   0-6 by how much the zigzag index advances | 7-11 bits it takes, code and magnitude
// An end of block advances by 64 from wherever it stands. A place in the stream is held as bit << TAKEN | index, so a
// symbol, or several of them, lead from one to the next by an addition: a leap. Behind it, 12-15: size of the magnitude.
constexpr int TAKEN = 7, SIZE = 12;
constexpr int INDEX = (1 << TAKEN) - 1, LEAP = (1 << SIZE) - 1;
constexpr int END_OF_BLOCK = BLOCK;
constexpr int FAR = 1 << 20;  // bits; no walk goes as far
constexpr u32 NO_CODE = 0xFFC0;  // takes 31 bits and ends the block, but has a size

struct Codes {
    u32 limit[LONGEST + 1];  // 16 bits below limit[n] begin with a code of at most n bits
    u32 place[LONGEST + 1];  // place[n] + a code of n bits, modulo 2^32: its number in `symbol`
    u16 symbol[256];         // leaps and sizes, without the length of the code
};

// Where a block's symbols are looked up, the first one and the others: number of the look-up's first entry << 5 | bits.
struct Aim {
    u32 dc, ac;
};

// The entries of look-ups:
//   0-11 a leap over all symbols, the first at least, that are complete in the bits looked at, up to an end of block
//   12-15 size of the first one | 16-27 leap over the first one
// 0: more bits are needed, or there is no such code.
struct Tables {
    u32 look[COMPONENTS * ((1 << DC_LOOK) + (1 << AC_LOOK))];  // for each number of a table
    Codes codes[TABLES];
    Aim aims[MAX_SLOTS];  // of the blocks of an MCU
};

FUNCTION u32 entry_of(u32 symbol) { return (symbol & LEAP) << 16 | symbol; }

FUNCTION int width_of(int number) { return number < COMPONENTS ? DC_LOOK : AC_LOOK; }

FUNCTION int first_entry(int number) {
    return number < COMPONENTS ? number << DC_LOOK : (COMPONENTS << DC_LOOK) + (number - COMPONENTS << AC_LOOK);
}

FUNCTION u32 aim_at(int number) { return first_entry(number) << 5 | width_of(number); }

template <int WORDS> FUNCTION void copy(u32* target, const u32* source, int t) {
    UNROLL for (int i = t; i < WORDS + t; i += THREADS)
        if (WORDS % THREADS == 0 || i < WORDS) target[i] = source[i];
}

// Threads copy the tables that a picture uses to where they can be read quickly.
FUNCTION void load_tables(const Picture& picture, Tables& tables, int t) {
    const Tables& made = *reinterpret_cast<const Tables*>(picture.tables);
    for (int number = 0; number < TABLES; ++number) {
        if (picture.huffman[number] == 0) continue;
        const int first = first_entry(number);
        if (number < COMPONENTS) copy<1 << DC_LOOK>(tables.look + first, made.look + first, t);
        else copy<1 << AC_LOOK>(tables.look + first, made.look + first, t);
        copy<sizeof(Codes) / sizeof(u32)>(tables.codes[number].limit, made.codes[number].limit, t);
    }
    if (t < MAX_SLOTS) tables.aims[t] = made.aims[t];
}

// The value of a magnitude that begins uppermost (T.81 F.2.2.1, EXTEND): one that begins with 0 stands for a negative
// value, all its bits inverted.
FUNCTION int extended(u32 magnitude, int size) {
    const int negative = ~static_cast<int>(magnitude) >> 31;
    return (static_cast<int>(funnel(0, magnitude ^ negative, size)) ^ negative) - negative;
}

// The words from where the next bit is, the third one loaded long before it is needed.
struct Reader {
    u32 high, low, ahead;
};

FUNCTION Reader reader_at(const u32* word) { return {read(word), read(word + 1), read(word + 2)}; }

// The 32 bits from `bit` on, as many as a symbol may take.
FUNCTION u32 peek(const Reader& reader, int bit) { return funnel(reader.high, reader.low, bit); }

// F.2.2.3 (DECODE), for codes that are longer than a look-up.
FUNCTION u32 search(const Codes& codes, u32 bits) {
    for (int length = DC_LOOK + 1; length <= LONGEST; ++length)
        if (bits < codes.limit[length])
            return codes.symbol[(codes.place[length] + (bits >> (LONGEST - length))) & 255] + (length << TAKEN);
    return NO_CODE;
}

// The number of the first interval that ends behind a bit.
FUNCTION int interval_at(const int* edges, int count, int bit) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (read(edges + middle) > bit) high = middle;
        else low = middle + 1;
    }
    return low;
}

// An interval's end, from a bit on, as a place in the stream; one that is far away need not be known.
FUNCTION int place_of(const int* edge, int base) { return lesser(read(edge) - base, FAR) << TAKEN; }

// Decode symbols from `from` until bit `end` is reached, as they would be if that place were right. Padding and restart
// markers are passed over: behind them the decoder stands at the first block of an MCU, wherever it thought it was.
// Which of an MCU's blocks it stands at says what tables are used. Where all use the same, nothing in the stream tells
// them apart, and whoever had a wrong guess would keep it for ever: there the period is a single block.
//
// A Visit that needs no values takes several symbols at once (MANY). Those that are taken together end in the walk and
// in the interval, and but for the last in the block; so it comes to the same places as one that takes them singly.
//
// Visit has  symbol(index, entry, bits), no_code(): false ends it; where MANY, they are not called | block_done() | padded(bit): nothing
// is left of the interval but padding | edge(interval): its end, in any case | where IN_PIECES, piece_done(place): at
// the first symbol behind the end of each piece but the last. Returns where it ends.
template <class Visit>
FUNCTION Place walk(const Picture& picture, const Tables& tables, Place from, int end, Visit& visit) {
    if (from.bit >= end) return from;
    MET(WALK);
    const int* edges = reinterpret_cast<const int*>(picture.edges);
    const int intervals = picture.intervals, last_slot = picture.period - 1;
    const int base = from.bit & ~31;  // bits are counted from here
    const u32* stream = reinterpret_cast<const u32*>(picture.stream) + (base >> 5);
    int at = (from.bit - base) << TAKEN | (from.within & INDEX), slot = from.within >> 8;
    int interval = interval_at(edges, intervals, from.bit), edge = place_of(edges + interval, base);
    int mark = ((from.bit & -picture.piece) + picture.piece - base) << TAKEN;
    end = (end - base) << TAKEN;
    int stop = lesser(Visit::IN_PIECES ? lesser(mark, end) : end, edge);
    Reader reader = reader_at(stream);
    u32 ac = tables.aims[slot].ac, aim = at & INDEX ? ac : tables.aims[slot].dc;
    while (true) {
        MET(STEP);
        const u32 bits = peek(reader, at >> TAKEN);
        u32 entry = tables.look[(aim >> 5) + funnel(0, bits, aim)];
        if (entry == 0) {
            MET(SEARCHED);
            const u32 number = ((aim & 31) == DC_LOOK ? picture.dc_tables : picture.ac_tables) >> 3 * slot & 7;
            entry = entry_of(search(tables.codes[number], bits >> 16));
            if constexpr (!Visit::MANY)
                if (entry == entry_of(NO_CODE) && !visit.no_code()) break;
        }
        const int next = at + (entry >> 16);
        int to = next;
        if constexpr (Visit::MANY) {
            const int many = at + (entry & LEAP);
            if (many <= stop + INDEX) to = many;
            if ((many ^ entry) & BLOCK) to = next;
        } else {
            if (!visit.symbol(at & INDEX, entry, bits)) break;
        }
        if ((to ^ at) & 32 << TAKEN) reader = {reader.low, reader.ahead, read(stream + (to >> TAKEN + 5) + 2)};
        at = to;
        aim = ac;
        if (at & END_OF_BLOCK) {
            MET(BLOCK_ENDS);
            at &= ~INDEX;
            visit.block_done();
            slot = slot == last_slot ? 0 : slot + 1;
            if (slot == 0) {
                MET(MCU_ENDS);
                const int left = edge - at >> TAKEN;  // padding is less than a byte of ones, which no code begins with
                if (0 <= left && left < 8 && (peek(reader, at >> TAKEN) >> 24 | 0xFF >> left) == 0xFF) {
                    visit.padded(base + (at >> TAKEN));
                    at = edge;
                }
            }
            aim = tables.aims[slot].dc;
            ac = tables.aims[slot].ac;
        }
        if (at >= stop) {
            MET(STOPS);
            if (at >= edge) {
                MET(INTERVAL_ENDS);
                visit.edge(interval);
                at = edge;
                slot = 0;
                reader = reader_at(stream + (at >> TAKEN + 5));
                aim = tables.aims[0].dc;
                ac = tables.aims[0].ac;
                interval = lesser(interval + 1, intervals - 1);
                edge = place_of(edges + interval, base);
            }
            if (at >= end) break;
            stop = lesser(end, edge);
            if constexpr (Visit::IN_PIECES) {
                if (at >= mark) {
                    visit.piece_done({base + (at >> TAKEN), slot << 8 | (at & INDEX)});
                    mark += picture.piece << TAKEN;
                }
                stop = lesser(mark, stop);
            }
        }
    }
    return {base + (at >> TAKEN), slot << 8 | (at & INDEX)};
}
