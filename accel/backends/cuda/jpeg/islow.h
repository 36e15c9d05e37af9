// libjpeg-turbo's "islow" inverse DCT (jidctint.c, after Loeffler, Ligtenberg and Moschytz, 1989).

#pragma once
#include "shim.h"

constexpr int CONSTANT_BITS = 13, FIRST_PASS_BITS = 2;

// The one-dimensional inverse DCT of eight values; SHIFT: of the results, which are rounded.
template <int SHIFT> FUNCTION void inverse_dct(int* x) {
    const int even = (x[2] + x[6]) * 4433, e2 = even - x[6] * 15137, e3 = even + x[2] * 6270;
    const int half = 1 << (SHIFT - 1);
    const int sum = (x[0] + x[4]) * (1 << CONSTANT_BITS) + half;
    const int difference = (x[0] - x[4]) * (1 << CONSTANT_BITS) + half;
    const int a0 = sum + e3, a3 = sum - e3, a1 = difference + e2, a2 = difference - e2;
    const int z1 = (x[7] + x[1]) * -7373, z2 = (x[5] + x[3]) * -20995;
    const int z5 = (x[7] + x[3] + x[5] + x[1]) * 9633;
    const int z3 = z5 - (x[7] + x[3]) * 16069, z4 = z5 - (x[5] + x[1]) * 3196;
    const int b0 = x[7] * 2446 + z1 + z3, b1 = x[5] * 16819 + z2 + z4;
    const int b2 = x[3] * 25172 + z2 + z3, b3 = x[1] * 12299 + z1 + z4;
    x[0] = (a0 + b3) >> SHIFT, x[7] = (a0 - b3) >> SHIFT;
    x[1] = (a1 + b2) >> SHIFT, x[6] = (a1 - b2) >> SHIFT;
    x[2] = (a2 + b1) >> SHIFT, x[5] = (a2 - b1) >> SHIFT;
    x[3] = (a3 + b0) >> SHIFT, x[4] = (a3 - b0) >> SHIFT;
}
