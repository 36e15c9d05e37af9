// Included before everything in kernels whose threads take their turns in another order in every phase.

#pragma once

inline int turn_of(unsigned i) {
    static thread_local unsigned state = 1, order;
    if (i == 0) order = state = state * 1664525 + 1013904223;
    return (i * (order >> 8 | 1) + (order >> 24)) % 256;  // odd steps meet all of 2^n threads
}

#define TURN(i) turn_of(i)
