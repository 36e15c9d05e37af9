// Huffman tables (T.81 annex C) from the lists in the files, with libjpeg's rules for what is allowed (jdhuff.c).

#include "jpeg/symbols.h"

FUNCTION bool is_dc(int number) { return number < COMPONENTS; }

// The entry of a symbol without the length of its code; 0: not allowed in a sequential scan.
FUNCTION u32 entry_without_length(int symbol, bool dc) {
    const int run = symbol >> 4, size = symbol & 15;
    if (dc && run) return 0;
    if (!dc && size == 0 && run != 0 && run != 15) return 0;
    const int advance = dc ? 1 : symbol ? run + 1 : END_OF_BLOCK;
    return size | advance << ADVANCE | size << SIZE;
}

// Annex C.2 (code sizes and codes), for codes as intervals of 16-bit numbers. False: there are too many codes, or one
// of only ones, which libjpeg does not take. `count`: of symbols.
FUNCTION bool make_codes(const u8* counts, Table& table, int& count) {
    u32 code = 0;
    count = 0;
    table.limit[0] = table.place[0] = 0;
    for (int length = 1; length <= LONGEST; ++length) {
        table.place[length] = count - code;
        code += counts[length - 1];
        count += counts[length - 1];
        if (counts[length - 1] && code >= 1u << length) return false;
        table.limit[length] = code << (LONGEST - length);
        code <<= 1;
    }
    return count <= 256;
}

// One block of threads makes the tables of a picture.
FUNCTION void make_tables(int, const Picture& picture) {
    SHARED(int, count);
    SHARED(int, good);
    for (int number = 0; number < TABLES; ++number) {
        if (picture.huffman[number] == 0) continue;
        const u8* counts = reinterpret_cast<const u8*>(picture.file) + picture.huffman[number];
        const u8* symbols = counts + LONGEST;
        Table& table = reinterpret_cast<Table*>(picture.tables)[number];
        PHASE(t) {
            if (t > 0) continue;
            good = make_codes(counts, table, count);
            if (!good) flag(picture, BAD_TABLE);
        }
        PHASE(t) {
            if (!good) continue;
            const u32 entry = t < count ? entry_without_length(symbols[t], is_dc(number)) : 0;
            if (t < count && entry == 0) flag(picture, BAD_TABLE);
            table.symbol[t] = static_cast<u16>(entry);
        }
        PHASE(t) {
            if (!good) continue;
            for (int i = t; i < 1 << LOOK; i += THREADS) {
                const u32 bits = i << (LONGEST - LOOK);
                int length = 1;
                while (length <= LOOK && bits >= table.limit[length]) ++length;
                const u32 place = table.place[length] + (bits >> (LONGEST - length));
                table.look[i] = length > LOOK ? 0 : static_cast<u16>(table.symbol[place & 255] + length);
            }
        }
    }
}

KERNEL(jpeg_tables, Picture, make_tables)
