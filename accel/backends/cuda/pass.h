// What the host tells the kernels, which reads these structures here (`declarations.py`): a u64 is an address.

#pragma once
#include "shim.h"

// Coefficients to compute: of one axis of a resampling, for `count` neighbouring resampled positions from `first` on.
struct CoefficientJob {
    u64 bounds;        // int32[2][count]: first tap and number of taps; then one more: bits after the binary point
    u64 coefficients;  // int32[most taps][count], fixed point
    double begin, span;  // the part of the axis that is resampled
    int resample, length, size, first, count, unused;
};

// One axis of a pass: what is shown at each output position, and what that is made of.
struct Axis {
    u64 window;                // int32[]: position or fill code (below 0) of each output position; 0: start + step * p
    u64 bounds, coefficients;  // as above, of the positions from `first` on
    i64 stride;                // bytes from one position of the input to the next, either sign
    int start, step, first, count;
};

enum Mode : int { COPY, COLUMNS_FIRST, ROWS_FIRST };  // COPY: positions are those of the input; else resampled ones

// One fused pass over one image: [rows, columns, channels] of uint8 to values of 1, 2, 4 or 8 bytes.
struct Pass {
    u64 source;     // its pixels; position (0, 0) of the input lies `origin` bytes further on
    i64 origin;
    u64 target;
    u64 table;      // [channels][256] values, at a multiple of 16; 0: the bytes themselves
    u64 fills;      // uint8[][channels]: code -1 - i is colour i
    u64 input_lut;  // uint8[channels][256], which a COPY looks the source up in; 0: none
    Axis rows, columns;
    int height, width;         // of the output
    int first_block, across;   // tiles of the output: the first one's block, and how many lie side by side
    int itemsize, planar;      // of the output: bytes of a value, and [channels, rows, columns] or interleaved
    int mode, unused;
};
