// The entropy-coded data of a scan as a stream of bits (T.81 B.1.1.5, F.1.2.3): the zero bytes that are stuffed in
// behind 0xFF and the restart markers taken out, the restart intervals' ends noted.
//
// Three launches, because a byte's place depends on all bytes before it: `count` looks at each tile of the file,
// `offsets` sums up over the tiles of a file, `unstuff` looks once more and moves the bytes.

#include "jpeg/picture.h"

constexpr int NONE = 0x7FFFFFFF;
constexpr int STAGED = TILE / 4 + SPAN / 4 + 1;
constexpr int PADDING = 24;  // bytes of ones behind the stream, for those who look ahead

// Of SPAN bytes, the i-th bit for the i-th: those that are of the stream, and the first ones of markers.
struct Roles {
    u32 kept, markers;
};

struct Bytes {
    u32 word[SPAN / 4];
};

// 0x80 in the place of every byte of a word that is zero.
FUNCTION u32 zeros(u32 word) { return ~((word & 0x7F7F7F7F) + 0x7F7F7F7F | word | 0x7F7F7F7F); }

// Append in front of a mask those four bits.
FUNCTION u32 gathered(u32 mask, u32 bits) { return funnel(mask, bits * 0x204081, 4); }

// The lowest bits, as many as SPAN at most.
FUNCTION u32 lowest(int count) { return (1u << lesser(greater(count, 0), SPAN)) - 1; }

// Where the bytes of thread t of a tile begin in the file, perhaps before the scan.
FUNCTION int span_start(const Picture& picture, int number, int t) {
    return (picture.scan & ~(SPAN - 1)) + number * TILE + t * SPAN;
}

FUNCTION int byte_at(const Picture& picture, int position) {
    return position < picture.size ? reinterpret_cast<const u8*>(picture.file)[position] : -1;
}

// What the bytes from `start` on are, which begin in the file; `words`: they themselves.
FUNCTION Roles look_at(const Picture& picture, int start, u32* words) {
    const u64* source = reinterpret_cast<const u64*>(picture.file + start);  // files are padded to whole spans
    u32 marked = 0, zero = 0;
    UNROLL for (int i = SPAN / 8 - 1; i >= 0; --i) {
        const u64 eight = read(source + i);
        words[2 * i] = static_cast<u32>(eight), words[2 * i + 1] = static_cast<u32>(eight >> 32);
        for (int half = 1; half >= 0; --half) {
            marked = gathered(marked, zeros(~words[2 * i + half]));
            zero = gathered(zero, zeros(words[2 * i + half]));
        }
    }
    const u32 inside = lowest(picture.size - start), scan = inside & ~lowest(picture.scan - start);
    marked &= scan;
    const u32 behind = marked << 1 | (start > picture.scan && byte_at(picture, start - 1) == MARKER);
    const u32 stuffed = (zero & inside) >> 1 | (byte_at(picture, start + SPAN) == 0) << (SPAN - 1);
    return {(scan & ~(marked | behind)) | (marked & stuffed), marked & ~stuffed};
}

FUNCTION bool is_restart(int byte) { return (byte & ~7) == FIRST_RESTART; }

// A block of threads looks at one tile.
FUNCTION void count_tiles(int block, const Picture& picture) {
    SHARED(int, lost);  // bytes that are not kept, less the restarts << 16
    SHARED(int, stop);
    const int number = block - picture.first_tile;
    PHASE(t) {
        if (t == 0) lost = 0, stop = NONE;
    }
    PHASE(t) {
        const int start = span_start(picture, number, t);
        u32 words[SPAN / 4];
        Roles roles = {0, 0};
        if (start < picture.size) roles = look_at(picture, start, words);
        int found = SPAN - count_bits(roles.kept);
        for (; roles.markers; roles.markers &= roles.markers - 1) {
            MET(MARKED);
            const int position = start + lowest_bit(roles.markers);
            if (is_restart(byte_at(picture, position + 1))) found -= 1 << 16;
            else atomicMin(&stop, position);
        }
        if (found) atomicAdd(&lost, found);
    }
    PHASE(t) {
        if (t > 0) continue;
        const int all = TILE - lost;
        reinterpret_cast<Tile*>(picture.tiles)[number] = {all & 0xFFFF, all >> 16, stop, 0};
    }
}

// One block of threads for a picture: its tiles' counts become those of what is before them.
FUNCTION void sum_tiles(int, const Picture& picture) {
    SHARED(int, kept[2][THREADS]);
    SHARED(int, restarts[2][THREADS]);
    SHARED(int, kept_before);
    SHARED(int, restarts_before);
    SHARED(int, stop);
    Tile* tiles = reinterpret_cast<Tile*>(picture.tiles);
    PHASE(t) {
        if (t == 0) kept_before = restarts_before = 0, stop = NONE;
    }
    for (int first = 0; first < picture.tile_count; first += THREADS) {
        PHASE(t) {
            const bool live = first + t < picture.tile_count;
            kept[0][t] = live ? tiles[first + t].kept : 0;
            restarts[0][t] = live ? tiles[first + t].restarts : 0;
            if (live) atomicMin(&stop, tiles[first + t].stop);
        }
        prefix_sums(kept);
        prefix_sums(restarts);
        PHASE(t) {
            if (first + t >= picture.tile_count) continue;
            tiles[first + t].kept = kept_before + (t > 0 ? kept[0][t - 1] : 0);
            tiles[first + t].restarts = restarts_before + (t > 0 ? restarts[0][t - 1] : 0);
        }
        PHASE(t) {
            if (t > 0) continue;
            kept_before += kept[0][THREADS - 1];
            restarts_before += restarts[0][THREADS - 1];
        }
    }
    PHASE(t) {
        if (t == 0) state_of(picture) = {stop == NONE ? NO_END : SOUND, stop, 0, 0};
    }
}

// Where a byte of the stream lies: its words are read on a little-endian machine.
FUNCTION int swapped(int byte) { return byte ^ 3; }

// Take a byte out of some, which are in the stream's order, the first one uppermost; zeros come in at the end.
FUNCTION void squeeze(Bytes& bytes, int out) {
    UNROLL for (int i = 0; i < SPAN / 4; ++i) {
        const u32 moved = funnel(bytes.word[i], i + 1 < SPAN / 4 ? bytes.word[i + 1] : 0, 8);
        const u32 from = out <= 4 * i ? ~0u : out >= 4 * i + 4 ? 0 : ~0u >> 8 * (out - 4 * i);
        bytes.word[i] = (bytes.word[i] & ~from) | (moved & from);
    }
}

FUNCTION void unstuff_tile(int block, const Picture& picture) {
    SHARED(int, sums[2][THREADS]);  // what the threads up to each one have: kept bytes | restarts << 16
    SHARED(u32, staged[STAGED]);    // words of the stream, and some behind them
    OWNED(Roles, roles);
    OWNED(Bytes, words);
    const int number = block - picture.first_tile;
    const int stop = state_of(picture).stop;
    const Tile before = reinterpret_cast<const Tile*>(picture.tiles)[number];
    const int begin = before.kept & 3;
    u8* stream = reinterpret_cast<u8*>(picture.stream);
    int* edges = reinterpret_cast<int*>(picture.edges);
    PHASE(t) {
        const int start = span_start(picture, number, t);
        UNROLL for (int i = t; i < STAGED + t; i += THREADS)
            if (i < STAGED) staged[i] = 0;
        Roles& own = OWN(roles, t) = {0, 0};
        if (start < lesser(picture.size, stop)) own = look_at(picture, start, OWN(words, t).word);
        own.kept &= lowest(stop - start), own.markers &= lowest(stop - start);
        int found = count_bits(own.kept);
        for (u32 rest = own.markers; rest; rest &= rest - 1) found += 1 << 16;
        sums[0][t] = found;
    }
    prefix_sums(sums);
    PHASE(t) {
        const int start = span_start(picture, number, t), known = t > 0 ? sums[0][t - 1] : 0;
        const Roles own = OWN(roles, t);
        if (picture.kept) reinterpret_cast<u16*>(picture.kept)[number * THREADS + t] = static_cast<u16>(sums[0][t]);
        int place = begin + (known & 0xFFFF), restart = before.restarts + (known >> 16);
        for (u32 rest = own.markers; rest; rest &= rest - 1) {
            MET(MARKED);
            const int i = lowest_bit(rest), after = byte_at(picture, start + i + 1);
            const bool expected = restart < picture.intervals - 1 && after == FIRST_RESTART + (restart & 7);
            if (expected) edges[restart] = 8 * (before.kept + (known & 0xFFFF) + count_bits(own.kept & lowest(i)));
            else flag(picture, MARKERS);
            ++restart;
        }
        if (own.kept) {
            Bytes bytes;
            UNROLL for (int i = 0; i < SPAN / 4; ++i) bytes.word[i] = reversed(OWN(words, t).word[i]);
            for (u32 rest = own.kept ^ lowest(SPAN); rest;) {
                MET(SQUEEZED);
                const int last = highest_bit(rest);
                squeeze(bytes, last);
                rest ^= 1u << last;
            }
            u32 before_it = 0;
            UNROLL for (int i = 0; i <= SPAN / 4; ++i) {  // neighbours may have other bytes of the word
                const u32 word = i < SPAN / 4 ? bytes.word[i] : 0;
                const u64 both = static_cast<u64>(before_it) << 32 | word;
                atomicAdd(&staged[place / 4 + i], static_cast<u32>(both >> 8 * (place & 3)));
                before_it = word;
            }
        }
        place += count_bits(own.kept);
        if (start <= stop && stop < start + SPAN) {
            MET(ENDS);
            if (byte_at(picture, stop + 1) != END_OF_IMAGE || restart != picture.intervals - 1) flag(picture, MARKERS);
            const int bytes = before.kept + place - begin;
            edges[picture.intervals - 1] = state_of(picture).bits = 8 * bytes;
            for (int i = 0; i < PADDING; ++i) stream[swapped(bytes + i)] = 0xFF;
        }
    }
    PHASE(t) {  // words; bytes where other tiles have a part in them
        const int end = begin + (sums[0][THREADS - 1] & 0xFFFF), whole = end & ~3;
        u8* target = stream + before.kept - begin;
        UNROLL for (int k = 0; k < SPAN / 4; ++k) {
            const int i = k * THREADS + t + (begin > 0);
            if (4 * i < whole) reinterpret_cast<u32*>(target)[i] = staged[i];
        }
        const int i = t < 4 ? t : whole + t - 4;
        if (t < 8 && i >= begin && i < (t < 4 ? begin > 0 ? whole : 0 : end))
            target[swapped(i)] = reinterpret_cast<const u8*>(staged)[swapped(i)];
    }
}

KERNEL(jpeg_count, Picture, count_tiles)
KERNEL(jpeg_offsets, Picture, sum_tiles)
KERNEL(jpeg_unstuff, Picture, unstuff_tile)
