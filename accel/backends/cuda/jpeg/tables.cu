// Huffman tables (T.81 annex C) from the lists in the files, with libjpeg's rules for what is allowed (jdhuff.c).

#include "jpeg/symbols.h"

FUNCTION bool is_dc(int number) { return number < COMPONENTS; }

// The entry of a symbol without the length of its code; 0: not allowed in a sequential scan.
FUNCTION u32 entry_without_length(int symbol, bool dc) {
    const int run = symbol >> 4, size = symbol & 15;
    if (dc && run) return 0;
    if (!dc && size == 0 && run != 0 && run != 15) return 0;
    const int advance = dc ? 1 : symbol ? run + 1 : END_OF_BLOCK;
    return advance | size << TAKEN | size << SIZE;
}

// Annex C.2 (code sizes and codes), for codes as intervals of 16-bit numbers. False: there are too many codes, or one
// of only ones, which libjpeg does not take. `count`: of symbols.
FUNCTION bool make_codes(const u8* counts, Codes& codes, int& count) {
    u32 code = 0;
    count = 0;
    codes.limit[0] = codes.place[0] = 0;
    for (int length = 1; length <= LONGEST; ++length) {
        codes.place[length] = count - code;
        code += counts[length - 1];
        count += counts[length - 1];
        if (counts[length - 1] && code >= 1u << length) return false;
        codes.limit[length] = code << (LONGEST - length);
        code <<= 1;
    }
    return count <= 256;
}

// The symbols that are complete in `width` bits, of which the first one is known, as a leap over all of them.
FUNCTION u32 leap_over(const u16* symbols, u32 bits, u32 width) {
    u32 leap = symbols[bits] & LEAP;
    while (leap > 0 && !(leap & END_OF_BLOCK) && leap >> TAKEN < width) {
        const u32 more = symbols[bits << (leap >> TAKEN) & ((1 << width) - 1)] & LEAP, both = leap + more;
        const bool past_the_end = (both ^ more) & END_OF_BLOCK;
        if (more == 0 || both >> TAKEN > width || past_the_end) break;
        leap = both;
    }
    return leap;
}

// One block of threads makes the tables of a picture.
FUNCTION void make_tables(int, const Picture& picture) {
    SHARED(int, count);
    SHARED(int, good);
    SHARED(u16, symbols[1 << AC_LOOK]);  // the first one in the bits
    Tables& tables = *reinterpret_cast<Tables*>(picture.tables);
    PHASE(t) {
        if (t < MAX_SLOTS) tables.aims[t] = {aim_at(picture.dc_tables >> 3 * t & 7), aim_at(picture.ac_tables >> 3 * t & 7)};
    }
    for (int number = 0; number < TABLES; ++number) {
        if (picture.huffman[number] == 0) continue;
        const u8* counts = reinterpret_cast<const u8*>(picture.file) + picture.huffman[number];
        const u8* listed = counts + LONGEST;
        const bool dc = is_dc(number);
        const int width = width_of(number);
        u32* look = tables.look + first_entry(number);
        Codes& codes = tables.codes[number];
        PHASE(t) {
            if (t > 0) continue;
            good = make_codes(counts, codes, count);
            if (!good) flag(picture, BAD_TABLE);
        }
        PHASE(t) {
            if (!good) continue;
            const u32 entry = t < count ? entry_without_length(listed[t], dc) : 0;
            if (t < count && entry == 0) flag(picture, BAD_TABLE);
            codes.symbol[t] = static_cast<u16>(entry);
        }
        PHASE(t) {
            if (!good) continue;
            for (int i = t; i < 1 << width; i += THREADS) {
                const u32 bits = i << (LONGEST - width);
                int length = 1;
                while (length <= width && bits >= codes.limit[length]) ++length;
                const u32 place = codes.place[length] + (bits >> (LONGEST - length));
                symbols[i] = length > width ? 0 : static_cast<u16>(codes.symbol[place & 255] + (length << TAKEN));
            }
        }
        PHASE(t) {
            if (!good) continue;
            for (int i = t; i < 1 << width; i += THREADS)
                look[i] = (entry_of(symbols[i]) & ~LEAP) | (dc ? symbols[i] & LEAP : leap_over(symbols, i, width));
        }
    }
}

KERNEL(jpeg_tables, Picture, make_tables)
