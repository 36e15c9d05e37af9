// Decoding a region of a picture that has an index: points of the stream, every so many MCUs, with where they are in
// the file and the DC predictions there. Every thread decodes a segment, from a point to the next one or to the last
// MCU that is needed before it. It reads the file itself and keeps values, so nothing is unstuffed, synchronised or
// summed up before, and of what is not needed only the beginnings of segments are read.
//
// The host has seen that the index is the file's own (a digest of all bytes). Even so a segment must come to its point
// exactly, with the same predictions, or the picture is flagged; and nothing is accepted that `entropy.cu` would flag.

#include "jpeg/symbols.h"

// 0x80 in the place of every byte that is 0xFF.
FUNCTION u32 marked_in(u32 bytes) { return bytes & ((bytes & 0x7F7F7F7F) + 0x01010101) & 0x80808080; }

// The next bits of a file's scan, without the zeros that are stuffed in behind 0xFF (T.81 B.1.1.5).
struct Window {
    const u32* words;  // of the file
    int size;          // of the file, in bytes
    int byte;          // offset in the file of the first one that is not in the window yet
    u32 word, next;    // of the file: the one that has this byte, and what follows
    u32 high, low;     // the window, the next bit uppermost
    int bits;          // how many of it are valid; at least 32 where a symbol is looked up
    int beyond;        // of them bytes that are not in the file, but behind its end or a marker: ones

    MEMBER u32 word_at(int number) const { return reversed(read(words + lesser(number, (size - 1) >> 2))); }

    MEMBER int byte_at(int place) const {
        return place < size ? read(reinterpret_cast<const u8*>(words) + place) : -1;
    }

    // Begin at a byte of the file and a bit of it.
    MEMBER void start(int at, int bit) {
        byte = at;
        word = word_at(byte >> 2);
        next = word_at((byte >> 2) + 1);
        high = low = bits = beyond = 0;
        fill();
        drop(bit);
    }

    // Take bits that are valid, fewer than 32.
    MEMBER void drop(int count) {
        high = funnel(high, low, count);
        low <<= count;
        bits -= count;
    }

    // The file's next 4 bytes, the first one uppermost; behind its end, any.
    MEMBER u32 four() const { return funnel(word, next, 8 * byte); }

    MEMBER void append(u32 bytes, int count) {
        high |= bytes >> bits;
        low = bytes << 1 << (31 - bits);
        bits += 8 * count;
    }

    // Take bytes until there is no room for 4 more: nearly always 4 that are as they are.
    MEMBER void fill() {
        if (bits >= 32) return;
        MET(FILLED);
        u32 bytes = four(), marked = marked_in(bytes);
        if (!marked && byte + 4 <= size) {
            byte += 4;
            word = next;
            next = word_at((byte >> 2) + 1);
            append(bytes, 4);
            return;
        }
        do {
            MET(STUFFED);
            const int inside = size - byte, first = marked ? (31 - highest_bit(marked)) >> 3 : 4;
            int count = 4;
            if (first < inside && first < 4 && byte_at(byte + first + 1) == 0) {  // a stuffed zero behind it
                count = first + 1;
                bytes &= ~0u << (24 - 8 * first);
                byte += count + 1;
            } else {
                const int there = lesser(first, inside);
                beyond += 4 - there;
                bytes |= there < 4 ? ~0u >> 8 * there : 0;
                byte += there;
            }
            word = word_at(byte >> 2);
            next = word_at((byte >> 2) + 1);
            append(bytes, count);
            bytes = four(), marked = marked_in(bytes);
        } while (bits < 32);
    }

    // Go back to the byte that has the next bit, and return its number; -1: it is not in the file.
    MEMBER int rewind() {
        if (bits < 8 * beyond) return -1;
        for (int back = ((bits + 7) >> 3) - beyond; back > 0; --back)
            byte -= byte_at(byte - 1) == 0 && byte_at(byte - 2) == MARKER ? 2 : 1;
        return -bits & 7;
    }
};

// The components' DC predictions, the present one's first. In an MCU the blocks of each follow each other.
struct Predictions {
    int present, second, third;

    MEMBER void turn() {
        const int before = present;
        present = second, second = third, third = before;
    }
};

// Blocks of an MCU behind which another component comes, also from the last one to the first; 0 where there is only one.
FUNCTION u32 turns_of(const Picture& picture) {
    u32 turns = 0;
    for (int c = 0; c < component_count(picture) && component_count(picture) > 1; ++c) {
        const Component& component = picture.components[c];
        turns |= 1u << (component.slot + component.h * component.v - 1);
    }
    return turns;
}

// Behind the last MCU of a restart interval: from the byte that has the next bit to the one behind the marker. False:
// there is another marker, or none.
FUNCTION bool pass_marker(const Picture& picture, Window& window, int mcu) {
    const int bit = window.rewind();
    if (bit < 0) return false;
    int byte = window.byte;
    if (bit > 0) byte += window.byte_at(byte) == MARKER ? 2 : 1;  // the rest is padding
    const bool last = mcu == picture.mcus;
    const int code = last ? END_OF_IMAGE : FIRST_RESTART + ((mcu / picture.restart - 1) & 7);
    if (window.byte_at(byte) != MARKER || window.byte_at(byte + 1) != code) return false;
    if (!last) window.start(byte + 2, 0);
    return true;
}

// The coefficients of an MCU's first block; null where they are not needed.
FUNCTION i16* room_for(const Picture& picture, int row, int column) {
    const bool needed = picture.mcu_top <= row && row < picture.mcu_bottom &&  //
                        picture.mcu_left <= column && column < picture.mcu_right;
    const int across = picture.mcu_right - picture.mcu_left;
    const int cell = (row - picture.mcu_top) * across + column - picture.mcu_left;
    i16* first = reinterpret_cast<i16*>(picture.coefficients);
    return needed ? first + cell * picture.slots * BLOCK : nullptr;  // a picture has fewer than 2^31
}

// Decode a segment. What libjpeg would take with a warning, or not at all, is flagged.
FUNCTION void decode_segment(const Picture& picture, const Tables& tables, const Segment& segment) {
    MET(WALK);
    Window window;
    window.words = reinterpret_cast<const u32*>(picture.file), window.size = picture.size;
    window.start(segment.from.byte, segment.from.bit);
    Predictions dc = {segment.from.dc[0], segment.from.dc[1], segment.from.dc[2]};
    const u32 turns = turns_of(picture);
    const int last_slot = picture.slots - 1, end = segment.mcu + segment.mcus;
    int mcu = segment.mcu, row = mcu / picture.mcu_columns, column = mcu - row * picture.mcu_columns;
    int left = lesser(picture.restart - mcu % picture.restart, picture.mcus - mcu);  // MCUs of the interval
    int slot = 0, index = 0;
    i16* block = room_for(picture, row, column);  // the present one's coefficients
    u32 ac = tables.aims[0].ac, aim = tables.aims[0].dc;
    bool out_of_range = false;
    while (true) {
        MET(STEP);
        window.fill();
        u32 entry = tables.look[(aim >> 5) + funnel(0, window.high, aim)];
        if (entry == 0) {
            MET(SEARCHED);
            const u32 number = ((aim & 31) == DC_LOOK ? picture.dc_tables : picture.ac_tables) >> 3 * slot & 7;
            entry = entry_of(search(tables.codes[number], window.high >> 16));
            if (entry == entry_of(NO_CODE)) {
                flag(picture, BAD_CODE);
                return;
            }
        }
        const int advance = entry >> 16 & INDEX, size = entry >> SIZE & 15, taken = entry >> (16 + TAKEN);
        const int at = index + advance - 1;
        if ((at ^ advance) & END_OF_BLOCK) {
            flag(picture, BAD_CODE);
            return;
        }
        int value = extended(window.high << (taken - size), size);
        if (index == 0) {
            MET(BLOCK_BEGINS);
            value = dc.present += value;
            out_of_range |= static_cast<u32>(value + DC_LIMIT - 1) > 2 * DC_LIMIT - 2;
        }
        if (block && (size > 0 || index == 0)) block[at] = static_cast<i16>(value);
        window.drop(taken);
        aim = ac;
        index = at + 1;
        if (index & END_OF_BLOCK) {
            MET(BLOCK_ENDS);
            index = 0;
            if (block) block += BLOCK;
            if (turns >> slot & 1) dc.turn();
            slot = slot == last_slot ? 0 : slot + 1;
            if (slot == 0) {
                MET(MCU_ENDS);
                ++mcu;
                if (++column == picture.mcu_columns) column = 0, ++row;
                if (--left == 0 && (mcu < end || segment.whole)) {
                    MET(INTERVAL_ENDS);
                    if (!pass_marker(picture, window, mcu)) {
                        flag(picture, MARKERS);
                        return;
                    }
                    dc = {0, 0, 0};
                    left = lesser(picture.restart, picture.mcus - mcu);
                }
                if (mcu == end) break;
                block = room_for(picture, row, column);
            }
            ac = tables.aims[slot].ac;
            aim = tables.aims[slot].dc;
        }
    }
    if (out_of_range) flag(picture, DC_RANGE);
    if (!segment.whole || mcu == picture.mcus) {  // the last interval's end was looked at
        if (window.bits < 8 * window.beyond) flag(picture, BAD_CODE);
        return;
    }
    const Point& to = segment.to;
    const bool met = window.rewind() == to.bit && window.byte == to.byte && dc.present == to.dc[0] &&
                     dc.second == to.dc[1] && dc.third == to.dc[2];
    if (!met) flag(picture, MISFIT);
}

FUNCTION void decode_segments(int block, const Picture& picture) {
    SHARED(Tables, tables);
    SHARED(int, reason);
    const int first = (block - picture.first_segment) * THREADS;
    if (!is_sound(picture, reason)) return;
    PHASE(t) load_tables(picture, tables, t);
    PHASE(t) {
        if (first + t >= picture.segment_count) continue;
        decode_segment(picture, tables, reinterpret_cast<const Segment*>(picture.segments)[first + t]);
    }
}

KERNEL(jpeg_segments, Picture, decode_segments)
