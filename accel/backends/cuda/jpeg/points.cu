// An index of a picture that was decoded without one: where in the file every so many MCUs begin, and with what DC
// predictions. The kernels before have found out all of that; here it is gathered, for the host to read.

#include "jpeg/symbols.h"

// A walk along true symbols to where a block begins.
struct Seeking {
    static constexpr bool MANY = false, IN_PIECES = false;
    int blocks;  // that are still before it
    int bit;     // where the last interval's symbols end, if the walk got there

    MEMBER bool symbol(int, u32, u32) { return blocks > 0; }
    MEMBER bool no_code() { return false; }
    MEMBER void block_done() { --blocks; }
    MEMBER void padded(int at) { bit = at; }
    MEMBER void edge(int) {}
};

// The bit of the stream at which a block begins; behind the last one, where that ends.
FUNCTION int beginning(const Picture& picture, const Tables& tables, int block, int bits) {
    if (block == 0) return 0;
    const Span* spans = reinterpret_cast<const Span*>(picture.spans);
    const int size = PIECES * picture.piece;
    int low = 0, high = (bits + size - 1) / size - 1;
    while (low < high) {  // the last subsequence in which blocks before it may end
        MET(HALVED);
        const int middle = (low + high + 1) / 2;
        if (spans[middle].first < block) low = middle;
        else high = middle - 1;
    }
    const Place from = low > 0 ? spans[low - 1].end : Place{0, 0};
    Seeking seeking = {block - spans[low].first, -1};
    const Place end = walk(picture, tables, from, lesser((low + 1) * size, bits), seeking);
    return block == picture.mcus * picture.slots && seeking.bit >= 0 ? seeking.bit : end.bit;
}

// The offset in the file of a byte of the stream.
FUNCTION int offset_of(const Picture& picture, int number) {
    const Tile* tiles = reinterpret_cast<const Tile*>(picture.tiles);
    const u16* kept = reinterpret_cast<const u16*>(picture.kept);
    int low = 0, high = picture.tile_count - 1;
    while (low < high) {  // the last tile that begins before it or there
        MET(HALVED);
        const int middle = (low + high + 1) / 2;
        if (tiles[middle].kept <= number) low = middle;
        else high = middle - 1;
    }
    const int tile = low, within = number - tiles[tile].kept;
    low = 0, high = THREADS - 1;
    while (low < high) {  // the first span up to whose end there are more
        MET(HALVED);
        const int middle = (low + high) / 2;
        if (kept[tile * THREADS + middle] > within) high = middle;
        else low = middle + 1;
    }
    int left = within - (low > 0 ? kept[tile * THREADS + low - 1] : 0);
    const u8* file = reinterpret_cast<const u8*>(picture.file);
    int at = (picture.scan & ~(SPAN - 1)) + tile * TILE + low * SPAN;
    const int end = lesser(at + SPAN, picture.size - 1);
    for (at = greater(at, picture.scan); at < end; ++at) {
        MET(LOOKED);
        const bool behind = at > picture.scan && file[at - 1] == MARKER;  // a stuffed zero, or a marker's code
        const bool stays = file[at] == MARKER ? file[at + 1] == 0 : !behind;
        if (stays && --left < 0) break;
    }
    return at;
}

// The MCU that a point is before.
FUNCTION int mcu_at(const Picture& picture, int number) {
    const int line = number / picture.points_in_line, k = number - line * picture.points_in_line;
    return line * picture.line + (k * (picture.step + k * picture.growth) >> 8);
}

// A thread finds one point.
FUNCTION void gather_points(int block, const Picture& picture) {
    SHARED(Tables, tables);
    SHARED(int, reason);
    if (!is_sound(picture, reason)) return;
    const int bits = state_of(picture).bits;
    PHASE(t) load_tables(picture, tables, t);
    PHASE(t) {
        const int number = (block - picture.first_point) * THREADS + t;
        if (number > picture.point_count) continue;
        const int mcu = number < picture.point_count ? mcu_at(picture, number) : picture.mcus;
        Point& point = reinterpret_cast<Point*>(picture.points)[number];
        const int bit = beginning(picture, tables, mcu * picture.slots, bits);
        // behind the last bit of the stream, where all of the last byte is taken
        point.byte = bit < bits ? offset_of(picture, bit / 8) : state_of(picture).stop;
        point.bit = static_cast<u16>(bit % 8);
        for (int c = 0; c < COMPONENTS; ++c) {
            const Component& component = picture.components[c];
            const bool anew = c >= component_count(picture) || mcu % picture.restart == 0;
            const int last = component.slot + component.h * component.v - 1;
            point.dc[c] = static_cast<i16>(anew ? 0 : dc_value(picture, component, mcu - 1, last));
        }
    }
}

KERNEL(jpeg_points, Picture, gather_points)
