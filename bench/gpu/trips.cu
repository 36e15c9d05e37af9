// How often the loops of the JPEG decoder's entropy kernels would run on a GPU, counted on the host: `predict.py`.
//
// A warp's threads take a symbol each at a time, and all of them wait for those that have more to do with theirs. So a
// warp issues the instructions of a case once for every step in which one of its threads meets it.

#include "jpeg/symbols.h"

#include <algorithm>
#include <vector>

enum Event : u8 { SYMBOL = 1, SEARCHED = 2, BLOCK_ENDS = 4, MCU_ENDS = 8, INTERVAL_ENDS = 16 };

// What the warps of a kernel do; `predict.py` has the same structure.
struct Steps {
    i64 warps, symbols, steps, searched, blocks, mcus, intervals;
    i64 longest;  // steps of the block of threads that takes longest
};

// `second`, `later`: the rounds behind the first. `rounds`: of all blocks of threads together.
struct Trips {
    Steps first, second, later, joining, keeping;
    i64 rounds, longest_synchronise;
};

struct Recording {
    std::vector<u8> events;
    int period, within, blocks = 0, limit = 0x7FFFFFFF;

    Recording(const Picture& picture, Place from) : period(picture.period), within(from.within >> 8) {}

    bool symbol(int, u32 entry, u32) {
        if (blocks >= limit) return false;
        const bool is_long = static_cast<int>(entry & 31) - static_cast<int>(entry >> SIZE) > LOOK;
        events.push_back(is_long || entry == NO_CODE ? SYMBOL | SEARCHED : SYMBOL);
        return true;
    }
    void block_done() {
        ++blocks;
        within = within + 1 == period ? 0 : within + 1;
        events.back() |= within ? BLOCK_ENDS : BLOCK_ENDS | MCU_ENDS;
    }
    void edge(int, bool) {
        within = 0;
        events.back() |= INTERVAL_ENDS;
    }
};

// Threads that walk side by side; returns the steps of the longest warp.
static i64 side_by_side(const std::vector<const Recording*>& threads, Steps& steps) {
    i64 longest = 0;
    for (size_t first = 0; first < threads.size(); first += WARP) {
        const size_t last = std::min(first + WARP, threads.size());
        size_t length = 0;
        for (size_t t = first; t < last; ++t)
            if (threads[t]) length = std::max(length, threads[t]->events.size());
        for (size_t step = 0; step < length; ++step) {
            int met = 0;
            for (size_t t = first; t < last; ++t) {
                if (!threads[t] || step >= threads[t]->events.size()) continue;
                met |= threads[t]->events[step];
                ++steps.symbols;
            }
            steps.searched += (met & SEARCHED) != 0;
            steps.blocks += (met & BLOCK_ENDS) != 0;
            steps.mcus += (met & MCU_ENDS) != 0;
            steps.intervals += (met & INTERVAL_ENDS) != 0;
        }
        steps.steps += length;
        steps.warps += length > 0;
        longest = std::max<i64>(longest, length);
    }
    return longest;
}

static bool same(const Place& a, const Place& b) { return a.bit == b.bit && a.within == b.within; }

// As the kernels of entropy.cu do it, with subsequences of `size` bits.
static void count(const Picture& picture, int size, Trips& trips) {
    const Table* tables = reinterpret_cast<const Table*>(picture.tables);
    const int bits = state_of(picture).bits, count = (bits + size - 1) / size;
    auto end_of = [&](int i) { return std::min((i + 1) * size, bits); };
    std::vector<Place> starts(count), ends(count);
    std::vector<int> blocks(count);
    std::vector<Recording> walks(count, {picture, {}});
    auto take = [&](int i, Place from) {
        walks[i] = {picture, from};
        ends[i] = walk(picture, tables, starts[i] = from, end_of(i), walks[i]);
        blocks[i] = walks[i].blocks;
    };
    for (int base = 0; base < count; base += THREADS) {
        const int stop = std::min(base + THREADS, count);
        i64 longest = 0;
        std::vector<const Recording*> threads;
        for (int i = base; i < stop; ++i) {
            take(i, {i * size, 0});
            threads.push_back(&walks[i]);
        }
        longest += side_by_side(threads, trips.first);
        for (int round = 1;; ++round) {
            ++trips.rounds;
            std::vector<int> changed;
            for (int i = base + 1; i < stop; ++i)
                if (!same(starts[i], ends[i - 1])) changed.push_back(i);
            if (changed.empty()) break;
            std::vector<Place> from;
            for (int i : changed) from.push_back(ends[i - 1]);
            for (size_t k = 0; k < changed.size(); ++k) take(changed[k], from[k]);
            std::vector<const Recording*> again;
            for (int i : changed) again.push_back(&walks[i]);
            longest += side_by_side(again, round == 1 ? trips.second : trips.later);
        }
        trips.longest_synchronise = std::max(trips.longest_synchronise, longest);
    }
    const int parts = (count + THREADS - 1) / THREADS;
    std::vector<Place> entered(parts);
    for (int part = 1; part < parts; ++part) entered[part] = {part * THREADS * size, 0};
    for (bool again = true; again;) {
        again = false;
        std::vector<Place> next(parts);
        for (int part = 1; part < parts; ++part) next[part] = ends[part * THREADS - 1];
        std::vector<Recording> corrections(parts, {picture, {}});
        std::vector<const Recording*> threads(parts, nullptr);
        for (int part = 1; part < parts; ++part) {
            if (same(next[part], entered[part])) continue;
            Place place = entered[part] = next[part];
            const int stop = std::min((part + 1) * THREADS, count);
            for (int i = part * THREADS; i < stop; ++i) {
                const Place before = ends[i];
                take(i, place);
                place = ends[i];
                auto& all = corrections[part].events;
                all.insert(all.end(), walks[i].events.begin(), walks[i].events.end());
                if (same(place, before)) break;
                if (i == stop - 1) again = true;
            }
            threads[part] = &corrections[part];
        }
        trips.joining.longest += side_by_side(threads, trips.joining);
    }
    const int limit = std::min(picture.mcu_bottom * picture.mcu_columns, picture.mcus) * picture.slots;
    int before = 0;
    for (int base = 0; base < count; base += THREADS) {
        std::vector<Recording> kept(THREADS, {picture, {}});
        std::vector<const Recording*> threads;
        for (int i = base; i < std::min(base + THREADS, count); before += blocks[i++]) {
            Recording& own = kept[i - base];
            const Place from = i ? ends[i - 1] : Place{0, 0};
            own = {picture, from};
            own.limit = limit - before;
            if (own.limit > 0) walk(picture, tables, from, end_of(i), own);
            threads.push_back(&own);
        }
        trips.keeping.longest = std::max(trips.keeping.longest, side_by_side(threads, trips.keeping));
    }
}

extern "C" void count_trips(int pictures, const Picture* items, int size, Trips* trips) {
    for (int i = 0; i < pictures; ++i) {
        trips[i] = {};
        if (state_of(items[i]).reason == SOUND) count(items[i], size, trips[i]);
    }
}
