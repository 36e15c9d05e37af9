// The entropy-coded data of a scan as a stream of bits (T.81 B.1.1.5, F.1.2.3): the zero bytes that are stuffed in
// behind 0xFF and the restart markers taken out, the restart intervals' ends noted.
//
// Three launches, because a byte's place depends on all bytes before it: `count` looks at each tile of the file,
// `offsets` sums up over the tiles of a file, `unstuff` looks once more and moves the bytes.

#include "jpeg/picture.h"

constexpr int NONE = 0x7FFFFFFF;
constexpr int MARKER = 0xFF, FIRST_RESTART = 0xD0, END_OF_IMAGE = 0xD9;
constexpr int PADDING = 24;  // bytes of ones behind the stream, for those who look ahead

enum Role { DROPPED, KEPT, RESTART, FOREIGN };

// What a byte between two others is. FOREIGN: the first byte of a marker that does not belong to the scan.
FUNCTION Role role_of(int before, int byte, int after) {
    if (byte != MARKER) return before == MARKER ? DROPPED : KEPT;
    if (after == 0) return KEPT;
    return (after & ~7) == FIRST_RESTART ? RESTART : FOREIGN;
}

// Where the bytes of thread t of a tile begin in the file, perhaps before the scan.
FUNCTION int span_start(const Picture& picture, int number, int t) {
    return (picture.scan & ~(SPAN - 1)) + number * TILE + t * SPAN;
}

// Call visit(position, byte, byte after it, role) for those from the scan on.
template <class Visit> FUNCTION void visit_bytes(const Picture& picture, int number, int t, Visit visit) {
    const u8* file = reinterpret_cast<const u8*>(picture.file);
    const int start = span_start(picture, number, t);
    if (start >= picture.size) return;
    const u64* words = reinterpret_cast<const u64*>(file + start);  // files are padded to whole spans
    const u64 low = words[0], high = words[1];
    int before = start > picture.scan ? file[start - 1] : 0;
    const int beyond = start + SPAN < picture.size ? file[start + SPAN] : -1;
    for (int i = 0; i < SPAN; ++i) {
        const int byte = (i < 8 ? low >> 8 * i : high >> 8 * (i - 8)) & 0xFF;
        const int next = i + 1;
        int after = (next < 8 ? low >> 8 * next : high >> 8 * (next & 7)) & 0xFF;
        if (next == SPAN) after = beyond;
        if (start + next >= picture.size) after = -1;
        if (start + i >= picture.scan && start + i < picture.size) {
            visit(start + i, byte, after, role_of(before, byte, after));
            before = byte;
        }
    }
}

// A block of threads looks at one tile; `sums` has what the threads up to each one have: kept bytes | restarts << 16.
FUNCTION void count_tile(const Picture& picture, int number, int (&sums)[2][THREADS], int& stop) {
    PHASE(t) if (t == 0) stop = NONE;
    PHASE(t) {
        int found = 0, foreign = NONE;
        visit_bytes(picture, number, t, [&](int position, int, int, Role role) {
            found += role == KEPT ? 1 : role == RESTART ? 1 << 16 : 0;
            if (role == FOREIGN) foreign = lesser(foreign, position);
        });
        sums[0][t] = found;
        if (foreign != NONE) atomicMin(&stop, foreign);
    }
    prefix_sums(sums);
}

FUNCTION void count_tiles(int block, const Picture& picture) {
    SHARED(int, sums[2][THREADS]);
    SHARED(int, stop);
    const int number = block - picture.first_tile;
    count_tile(picture, number, sums, stop);
    PHASE(t) {
        if (t > 0) continue;
        const int all = sums[0][THREADS - 1];
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

FUNCTION void unstuff_tile(int block, const Picture& picture) {
    SHARED(int, sums[2][THREADS]);
    SHARED(int, ignored);
    SHARED(int, filled);
    SHARED(u8, staged[TILE]);
    const int number = block - picture.first_tile;
    const int stop = state_of(picture).stop;
    const Tile before = reinterpret_cast<const Tile*>(picture.tiles)[number];
    u8* stream = reinterpret_cast<u8*>(picture.stream);
    int* edges = reinterpret_cast<int*>(picture.edges);
    count_tile(picture, number, sums, ignored);
    PHASE(t) if (t == 0) filled = 0;
    PHASE(t) {
        const int known = t > 0 ? sums[0][t - 1] : 0;
        int place = known & 0xFFFF, restart = before.restarts + (known >> 16);
        visit_bytes(picture, number, t, [&](int position, int byte, int after, Role role) {
            if (position < stop && role == KEPT) staged[place++] = static_cast<u8>(byte);
            if (position < stop && role == RESTART) {
                const bool expected = restart < picture.intervals - 1 && after == FIRST_RESTART + (restart & 7);
                if (expected) edges[restart] = 8 * (before.kept + place);
                else flag(picture, MARKERS);
                ++restart;
            }
            if (position == stop) {
                if (after != END_OF_IMAGE || restart != picture.intervals - 1) flag(picture, MARKERS);
                const int bytes = before.kept + place;
                edges[picture.intervals - 1] = state_of(picture).bits = 8 * bytes;
                for (int i = 0; i < PADDING; ++i) stream[swapped(bytes + i)] = 0xFF;
            }
        });
        if (span_start(picture, number, t) < stop) atomicMax(&filled, place);
    }
    PHASE(t) for (int i = t; i < filled; i += THREADS) stream[swapped(before.kept + i)] = staged[i];
}

KERNEL(jpeg_count, Picture, count_tiles)
KERNEL(jpeg_offsets, Picture, sum_tiles)
KERNEL(jpeg_unstuff, Picture, unstuff_tile)
