// Rectangles of the result whose values are given (RandomErasing). One block makes a few lines of one rectangle.

#include "shim.h"

constexpr int LINES = 8;

struct Patch {
    u64 target;  // the image's first value
    u64 values;  // [channels][given_rows][given_columns], which repeat where they are 1
    int channels, height, width;           // of the image
    int top, left, rows, columns;          // the rectangle
    int given_rows, given_columns;
    int itemsize, planar, first_block;
};

template <class T> FUNCTION void write(const Patch& patch, int line, int t) {
    const int count = patch.planar ? patch.columns : patch.columns * patch.channels;
    const int row = patch.planar ? line % patch.rows : line;
    const i64 y = patch.top + row;
    for (int i = t % WARP; i < count; i += WARP) {
        const int c = patch.planar ? line / patch.rows : i % patch.channels;
        const int column = patch.planar ? i : i / patch.channels;
        const i64 x = patch.left + column;
        const i64 at = patch.planar ? (c * static_cast<i64>(patch.height) + y) * patch.width + x
                                    : (y * patch.width + x) * patch.channels + c;
        const i64 from = (static_cast<i64>(c) * patch.given_rows + lesser(row, patch.given_rows - 1)) * patch.given_columns +
                         lesser(column, patch.given_columns - 1);
        reinterpret_cast<T*>(patch.target)[at] = read(reinterpret_cast<const T*>(patch.values) + from);
    }
}

FUNCTION void run(int block, const Patch& patch) {
    const int lines = patch.planar ? patch.rows * patch.channels : patch.rows;
    PHASE(t) {
        const int line = (block - patch.first_block) * LINES + t / WARP;
        if (line >= lines) continue;
        switch (patch.itemsize) {
            case 1: write<u8>(patch, line, t); break;
            case 2: write<u16>(patch, line, t); break;
            case 4: write<u32>(patch, line, t); break;
            default: write<u64>(patch, line, t);
        }
    }
}

KERNEL(patch, Patch, run)
