// Huffman symbols (T.81 annex C, F.2.2): the tables that look them up, and the loop over them that all passes share.

#pragma once
#include "jpeg/picture.h"

constexpr int LOOK = 10;  // bits that one look-up resolves
constexpr int LONGEST = 16;

// A table's entries say all that a symbol does to the decoder, in 16 bits:
//   0-4 bits it takes, code and magnitude | 5-11 by how much the zigzag index advances | 12-15 size of the magnitude
// An end of block advances by 64 from wherever it stands.
constexpr int ADVANCE = 5, SIZE = 12;
constexpr int END_OF_BLOCK = BLOCK;
constexpr u32 NO_CODE = 0xFFFF;  // advances by 127

struct Table {
    u16 look[1 << LOOK];         // 0: more bits are needed, or there is no such code
    u32 limit[LONGEST + 1];      // 16 bits below limit[n] begin with a code of at most n bits
    u32 place[LONGEST + 1];      // place[n] + a code of n bits, modulo 2^32: its number in `symbol`
    u16 symbol[256];             // entries without the length of the code
};

static_assert(sizeof(Table) % sizeof(u32) == 0, "copied by words");

// The stream from some bit on; the next bits lie uppermost in a window that is kept in a register.
struct Reader {
    const u32* next;
    u64 window;
    int held;  // bits of the window
};

FUNCTION Reader reader_at(const u32* stream, int bit) {
    const u32* next = stream + (bit >> 5);
    return {next + 2, (static_cast<u64>(next[0]) << 32 | next[1]) << (bit & 31), 64 - (bit & 31)};
}

// See to it that the window holds 32 bits, as many as a symbol may take.
FUNCTION void refill(Reader& reader) {
    if (reader.held >= 32) return;
    reader.window |= static_cast<u64>(*reader.next++) << (32 - reader.held);
    reader.held += 32;
}

FUNCTION u32 peek(const Reader& reader) { return static_cast<u32>(reader.window >> 32); }

FUNCTION void skip(Reader& reader, int bits) {
    reader.window <<= bits;
    reader.held -= bits;
}

// F.2.2.3 (DECODE), for codes that are longer than LOOK.
FUNCTION u32 search(const Table& table, u32 bits) {
    for (int length = LOOK + 1; length <= LONGEST; ++length)
        if (bits < table.limit[length])
            return table.symbol[(table.place[length] + (bits >> (LONGEST - length))) & 255] + length;
    return NO_CODE;
}

FUNCTION u32 entry_of(const Table& table, u32 bits) {
    const u32 entry = table.look[bits >> (32 - LOOK)];
    return entry ? entry : search(table, bits >> 16);
}

// The number of the first interval that ends behind a bit.
FUNCTION int interval_at(const int* edges, int count, int bit) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (edges[middle] > bit) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Decode symbols from `from` until bit `end` is reached, as they would be if that place were right. Padding and restart
// markers are passed over: behind them the decoder stands at the first block of an MCU, wherever it thought it was.
// Which of an MCU's blocks it stands at says what tables are used. Where all use the same, nothing in the stream tells
// them apart, and whoever had a wrong guess would keep it for ever: there the period is a single block.
//
// Visit has  symbol(within, entry, bits): false ends it | block_done() | edge(interval, clean): at the end
// of an interval; clean if nothing but padding was left. Returns where it ends.
template <class Visit>
FUNCTION Place walk(const Picture& picture, const Table* tables, Place from, int end, Visit& visit) {
    const u32* stream = reinterpret_cast<const u32*>(picture.stream);
    const int* edges = reinterpret_cast<const int*>(picture.edges);
    const u32 dc_tables = picture.dc_tables, ac_tables = picture.ac_tables;  // three bits for every slot
    const int intervals = picture.intervals, last_slot = 3 * (picture.period - 1);
    int bit = from.bit, slot = 3 * (from.within >> 8), index = from.within & 255;
    if (bit >= end) return from;
    int interval = interval_at(edges, intervals, bit), edge = edges[interval];
    Reader reader = reader_at(stream, bit);
    const Table* ac = tables + (ac_tables >> slot & 7);
    const Table* table = index ? ac : tables + (dc_tables >> slot & 7);
    while (bit < end) {
        refill(reader);
        const u32 bits = peek(reader), entry = entry_of(*table, bits);
        if (!visit.symbol(index, entry, bits)) break;
        const int taken = entry & 31;
        skip(reader, taken);
        bit += taken;
        index += entry >> ADVANCE & 127;
        table = ac;
        bool clean = false;
        if (index >= BLOCK) {
            index = 0;
            visit.block_done();
            slot = slot == last_slot ? 0 : slot + 3;
            if (slot == 0) {
                const int left = edge - bit;  // padding is less than a byte of ones, which no code begins with
                refill(reader);
                clean = 0 <= left && left < 8 && (peek(reader) >> 24 | 0xFF >> left) == 0xFF;
            }
            ac = tables + (ac_tables >> slot & 7);
            table = tables + (dc_tables >> slot & 7);
        }
        if (bit >= edge || clean) {
            visit.edge(interval, clean);
            bit = edge;
            slot = index = 0;
            ac = tables + (ac_tables & 7);
            table = tables + (dc_tables & 7);
            interval = lesser(interval + 1, intervals - 1);
            edge = edges[interval];
            reader = reader_at(stream, bit);
        }
    }
    return {bit, slot / 3 << 8 | index};
}
