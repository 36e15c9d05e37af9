// How often the loops of the JPEG decoder's entropy kernels would run on a GPU: the kernels themselves run on the host,
// and are watched. What no thread does is not counted, and what any does is: rounds, tails, everything.
//
// A warp's threads take a step of their loop at a time, and all of them wait for those that have more to do in theirs.
// So a warp issues the instructions of a case once for every step in which one of its threads meets it.

#define MET(what) meet(what)
#define TURN(i) (thread = (i))
#define BARRIER() end_phase()

#include <algorithm>
#include <cstddef>
#include <vector>

// Cases that a thread meets one after the other, and its warp as often as the thread that meets them most; a step of a
// walk; what may happen in a step. `shim.h` has the macro, the kernels' sources the places.
enum Case {
    WALK, MARKED, SQUEEZED, ENDS, RUN, HALVED, LOOKED,
    STEP, SEARCHED, BLOCK_ENDS, MCU_ENDS, STOPS, INTERVAL_ENDS, BLOCK_BEGINS, FILLED, STUFFED, STUFFED_AGAIN,
    CASES
};

// What the warps of a kernel do; `counts.py` has the same structure.
struct Steps {
    long long warps[CASES];  // how often a warp meets the case
    long long symbols;       // steps of all threads: look-ups
    long long longest;       // steps of the block of threads that takes longest
};

struct Trips {
    Steps unstuffing, colouring;
    Steps first, later, joining, keeping;  // `later`: the rounds behind the first
    Steps segments, seeking;
    long long rounds;                      // of all blocks of threads together
};

static int thread;
static std::vector<unsigned> seen[256];  // of each thread in this phase: the cases of its steps
static long long often[STEP][256];       // and how often it has met the others
static Steps* counted;           // for this phase
static Steps* after;             // for those behind the first phase in which anything was met; null: the same
static long long phases, chain;  // of the present block of threads

static void meet(Case what) {
    if (what < STEP) ++often[what][thread];
    else if (what == STEP) seen[thread].push_back(1 << STEP);
    else if (!seen[thread].empty()) {  // or the walk has not begun
        unsigned& cases = seen[thread].back();
        cases |= 1 << (what == STUFFED && cases >> STUFFED & 1 ? STUFFED_AGAIN : what);
    }
}

// The barrier is never left out, as the rig may do.
static bool end_phase() {
    size_t longest = 0;
    bool any = false;
    for (int first = 0; first < 256; first += 32) {
        for (int what = 0; what < STEP; ++what)
            counted->warps[what] += *std::max_element(often[what] + first, often[what] + first + 32);
        size_t length = 0;
        for (int t = first; t < first + 32; ++t) length = std::max(length, seen[t].size());
        any |= length > 0;
        for (size_t step = 0; step < length; ++step) {
            unsigned met = 0;
            for (int t = first; t < first + 32; ++t)
                if (step < seen[t].size()) met |= seen[t][step];
            for (int what = STEP; what < CASES; ++what) counted->warps[what] += met >> what & 1;
        }
        longest = std::max(longest, length);
    }
    for (int t = 0; t < 256; ++t) {
        counted->symbols += static_cast<long long>(seen[t].size());
        seen[t].clear();
        for (auto& times : often) times[t] = 0;
    }
    if (any && after != nullptr) counted = after;
    chain += static_cast<long long>(longest);
    ++phases;
    return false;
}

#include "jpeg/entropy.cu"
#include "jpeg/pixels.cu"
#include "jpeg/points.cu"
#include "jpeg/segments.cu"
#include "jpeg/stream.cu"

static_assert(THREADS == 256 && WARP == 32, "as above");

// Phases of jpeg_synchronise beside its rounds: the tables, the first walk; the spans.
constexpr int BEFORE_ROUNDS = 2, BEHIND_ROUNDS = 1;

static void begin(Steps& steps, Steps* then = nullptr) {
    counted = &steps;
    after = then;
    phases = chain = 0;
}

static void count(const Picture& picture, Trips& trips) {
    for (int tile = picture.first_tile; tile < picture.first_tile + picture.tile_count; ++tile) {
        begin(trips.unstuffing);
        unstuff_tile(tile, picture);
    }
    const int size = PIECES * picture.piece, subsequences = (state_of(picture).bits + size - 1) / size;
    const int blocks = (subsequences + THREADS - 1) / THREADS;
    for (int block = picture.first_span; block < picture.first_span + blocks; ++block) {
        begin(trips.first, &trips.later);
        synchronise(block, picture);
        trips.rounds += phases - BEFORE_ROUNDS - BEHIND_ROUNDS;
        trips.later.longest = std::max(trips.later.longest, chain);
    }
    begin(trips.joining);
    join(0, picture);
    trips.joining.longest = chain;
    for (int block = picture.first_span; block < picture.first_span + blocks; ++block) {
        begin(trips.keeping);
        keep_coefficients(block, picture);
        trips.keeping.longest = std::max(trips.keeping.longest, chain);
    }
    for (int first = 0; picture.line > 0 && first <= picture.point_count; first += THREADS) {
        begin(trips.seeking);
        gather_points(picture.first_point + first / THREADS, picture);
        trips.seeking.longest = std::max(trips.seeking.longest, chain);
    }
}

static void count_segments(const Picture& picture, Trips& trips) {
    for (int first = 0; first < picture.segment_count; first += THREADS) {
        begin(trips.segments);
        decode_segments(picture.first_segment + first / THREADS, picture);
        trips.segments.longest = std::max(trips.segments.longest, chain);
    }
}

static void count_pixels(const Picture& picture, Trips& trips) {
    const int total = picture.height * picture.width, each = PIXELS * THREADS;
    for (int block = 0; block < (total + each - 1) / each; ++block) {
        begin(trips.colouring);
        make_pixels(picture.first_pixel + block, picture);
    }
}

extern "C" void count_trips(int pictures, const Picture* items, Trips* trips) {
    for (int i = 0; i < pictures; ++i) {
        trips[i] = {};
        if (state_of(items[i]).reason != SOUND) continue;
        if (items[i].segments) count_segments(items[i], trips[i]);
        else count(items[i], trips[i]);
        count_pixels(items[i], trips[i]);
    }
}
