// Included before everything in kernels whose threads take their turns in another order in every phase, and whose blocks
// do in another order: which ones follows from SEED.

#pragma once

#include <numeric>

#ifndef SEED
#define SEED 1
#endif

inline int turn_of(unsigned i) {
    static thread_local unsigned state = SEED, order;
    if (i == 0) order = state = state * 1664525 + 1013904223;
    return (i * (order >> 8 | 1) + (order >> 24)) % 256;  // odd steps meet all of 2^n threads
}

inline int block_turn_of(unsigned i, unsigned count) {
    unsigned step = SEED * 2654435761u % count;
    while (std::gcd(step, count) != 1) ++step;
    return static_cast<int>((static_cast<unsigned long long>(i) * step + SEED) % count);
}

#define TURN(i) turn_of(i)
#define BLOCK_TURN(i, count) block_turn_of(i, count)
