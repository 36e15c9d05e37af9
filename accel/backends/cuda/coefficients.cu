// Resampling coefficients in fixed point, bit for bit those of Pillow and of ATen for uint8; one block an axis.
//
// Sources: Pillow, src/libImaging/Resample.c (precompute_coeffs, normalize_coeffs_8bpc); PyTorch,
// aten/src/ATen/native/cpu/UpSampleKernel.cpp (HelperInterpBase), aten/src/ATen/native/UpSample.h.
// Additions, products and quotients of float64 round alike everywhere (no contraction: --fmad=false). Sines do not:
// the coefficients of Lanczos and Hamming are made on the host, with the libm that Pillow itself calls (`schedule.py`).

#include "pass.h"

constexpr int BILINEAR = 2, BICUBIC = 3, BOX = 4;  // Pillow's codes
constexpr int ATEN = 8, ATEN_POINT = 16;           // added to one of these: accel.ops.resample.Aten
constexpr int PILLOW_BITS = 32 - 8 - 2, MOST_ATEN_BITS = 22;

FUNCTION double cubic(double a, double x) {
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a : 0.0;
}

FUNCTION double kernel_at(int filter, double x) {
    if (filter == BOX) return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
    x = fabs(x);
    if (filter == BICUBIC) return cubic(-0.5, x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

// What one resampled position is made of.
struct Taps {
    int first, count;
    double center, shrink, total;  // antialiasing: where the filter stands, its scale, the sum of its coefficients
    int index, reach;              // else: the position at or before the point that is sampled, half the taps,
    double beyond;                 // and how far beyond it the point lies
};

// Without antialiasing. Coefficients beyond an edge add up at the pixel there; ATen counts its bits by the largest sum
// that there is on the way.
FUNCTION double point_coefficient(const CoefficientJob& job, const Taps& taps, int t, double& largest) {
    double sum = 0.0;
    for (int j = 0; j < 2 * taps.reach; ++j) {
        const int position = lesser(greater(taps.index - taps.reach + 1 + j, 0), job.length - 1);
        if (position != taps.first + t) continue;
        const double x = fabs(j + 1 - taps.reach - taps.beyond);
        sum += taps.reach == 2 ? cubic(-0.75, x) : kernel_at(BILINEAR, x);
        largest = greater(largest, sum);
    }
    return sum;
}

FUNCTION double raw_coefficient(const CoefficientJob& job, const Taps& taps, int t) {
    double largest = 0.0;
    if (job.resample >= ATEN_POINT) return point_coefficient(job, taps, t, largest);
    return kernel_at(job.resample & 7, (t + taps.first - taps.center + 0.5) * taps.shrink);
}

FUNCTION Taps taps_of(const CoefficientJob& job, int position) {
    Taps taps;
    const double scale = job.span / job.size;
    if (job.resample >= ATEN_POINT) {
        taps.reach = (job.resample & 7) == BICUBIC ? 2 : 1;
        double point = scale * (position + 0.5) - 0.5;
        if (point < 0.0 && taps.reach == 1) point = 0.0;
        taps.index = lesser(static_cast<int>(floor(static_cast<double>(static_cast<float>(point)))), job.length - 1);
        taps.beyond = lesser(greater(point - taps.index, 0.0), 1.0);
        taps.first = greater(taps.index - taps.reach + 1, 0);
        taps.count = lesser(taps.index + taps.reach + 1, job.length) - taps.first;
        return taps;
    }
    const int filter = job.resample & 7;
    const double enlarged = greater(scale, 1.0);
    const double support = (filter == BICUBIC ? 2.0 : filter == BOX ? 0.5 : 1.0) * enlarged;
    taps.center = job.begin + (position + 0.5) * scale;
    taps.shrink = 1.0 / enlarged;
    taps.first = greater(static_cast<int>(taps.center - support + 0.5), 0);
    taps.count = lesser(static_cast<int>(taps.center + support + 0.5), job.length) - taps.first;
    taps.total = 0.0;
    for (int t = 0; t < taps.count; ++t) taps.total += raw_coefficient(job, taps, t);
    return taps;
}

FUNCTION double coefficient_at(const CoefficientJob& job, const Taps& taps, int t) {
    const double coefficient = raw_coefficient(job, taps, t);
    return job.resample < ATEN_POINT && taps.total != 0.0 ? coefficient / taps.total : coefficient;
}

FUNCTION double largest_at(const CoefficientJob& job, int position) {
    const Taps taps = taps_of(job, position);
    double largest = 0.0;
    for (int t = 0; t < taps.count; ++t)
        if (job.resample >= ATEN_POINT) point_coefficient(job, taps, t, largest);
        else largest = greater(largest, coefficient_at(job, taps, t));
    return largest;
}

FUNCTION int bits_for(double largest) {
    int bits = 0;
    while (bits < MOST_ATEN_BITS && static_cast<i64>(0.5 + largest * (1 << (bits + 1))) < 1 << 15) ++bits;
    return bits;
}

FUNCTION void axis_coefficients(int, const CoefficientJob& job) {
    int* bounds = reinterpret_cast<int*>(job.bounds);
    int* coefficients = reinterpret_cast<int*>(job.coefficients);
    const bool resampled = job.begin != 0.0 || job.span != job.size;
    SHARED(double, largest[THREADS]);
    SHARED(int, bits);
    PHASE(t) {
        largest[t] = 0.0;  // of the whole axis, whatever part of it is shown
        if (resampled && job.resample >= ATEN)
            for (int p = t; p < job.size; p += THREADS) largest[t] = greater(largest[t], largest_at(job, p));
    }
    PHASE(t) {
        if (t > 0) continue;
        for (int i = 1; i < THREADS; ++i) largest[0] = greater(largest[0], largest[i]);
        bits = resampled && job.resample >= ATEN ? bits_for(largest[0]) : PILLOW_BITS;
        bounds[2 * job.count] = bits;
    }
    PHASE(t) {
        for (int i = t; i < job.count; i += THREADS) {
            if (!resampled) {
                bounds[i] = job.first + i;
                bounds[job.count + i] = 1;
                coefficients[i] = 1 << bits;
                continue;
            }
            const Taps taps = taps_of(job, job.first + i);
            bounds[i] = taps.first;
            bounds[job.count + i] = taps.count;
            for (int k = 0; k < taps.count; ++k) {
                const double coefficient = coefficient_at(job, taps, k);
                coefficients[static_cast<i64>(k) * job.count + i] =
                    static_cast<int>((coefficient < 0.0 ? -0.5 : 0.5) + coefficient * (1 << bits));
            }
        }
    }
}

KERNEL(coefficients, CoefficientJob, axis_coefficients)
