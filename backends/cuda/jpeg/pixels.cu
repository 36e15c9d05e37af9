// From coefficients to pixels, with libjpeg-turbo's arithmetic: dequantisation, the inverse DCT (islow.h), fancy
// upsampling (jdsample.c), colour (jdcolor.c).

#include "jpeg/islow.h"
#include "jpeg/picture.h"

// libjpeg-turbo's SIMD code keeps 16 bits between the passes of the transform; see accel/codec/jpeg/idct.py.
constexpr u32 SAFE_SUM = 5900;
constexpr int MAX_QUANT = 8191;

alignas(8) CONSTANT u8 NATURAL[BLOCK] = {  // the place of a coefficient in its block (T.81 figure A.6)
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

// Value `k` of a component's quantisation table, which may have bytes or words; 0 where it is too large, and flagged.
FUNCTION int quantiser(const Picture& picture, const Component& component, int k) {
    const u8* table = reinterpret_cast<const u8*>(picture.file) + component.quant;
    const int value = table[0] >> 4 ? table[1 + 2 * k] << 8 | table[2 + 2 * k] : table[1 + k];
    if (value <= MAX_QUANT) return value;
    flag(picture, OVERFLOW);
    return 0;
}

// Where a block is read and written.
struct Block {
    const u64* source;  // its coefficients, eight times two of these
    u64* target;        // its first row's samples
    int dc;             // which is not among the coefficients
};

// Block `number` of those that the region needs of a component, which are counted row by row.
FUNCTION Block block_at(const Picture& picture, const Component& component, int number) {
    const int across = component.right - component.left, down = number / across;
    const int y = component.top + down, x = component.left + number - down * across;
    const int row = y / component.v, column = x / component.h;  // of the MCU
    const int slot = component.slot + (y - row * component.v) * component.h + x - column * component.h;
    const int needed_across = picture.mcu_right - picture.mcu_left;
    const i64 cell = static_cast<i64>(row - picture.mcu_top) * needed_across + column - picture.mcu_left;
    const i64 place = static_cast<i64>(8 * down) * component.stride + 8 * (number - down * across);
    const int dc = dc_value(picture, component, row * picture.mcu_columns + column, slot);
    return {reinterpret_cast<const u64*>(picture.coefficients) + (cell * picture.slots + slot) * (BLOCK / 4),
            reinterpret_cast<u64*>(component.plane) + place / 8,
            -DC_LIMIT < dc && dc < DC_LIMIT ? dc : 0};  // beyond the limit, it is flagged already
}

// Eight threads for each of GROUP blocks that the region needs; the others are not looked at.
FUNCTION void transform(int block, const Picture& picture) {
    SHARED(int, lines[GROUP][8][9]);  // an odd length keeps columns in different banks
    SHARED(u32, sizes[GROUP][8]);
    SHARED(int, factors[BLOCK]);  // in zigzag order, as the coefficients
    SHARED(Block, blocks[GROUP]);
    SHARED(int, reason);
    if (!is_sound(picture, reason)) return;
    const int group = block - picture.first_group;
    int c = component_count(picture) - 1;
    while (group < picture.components[c].first_group) --c;
    const Component& component = picture.components[c];
    const int first = (group - component.first_group) * GROUP;
    const int count = (component.right - component.left) * (component.bottom - component.top) - first;
    PHASE(t) {
        if (t < lesser(GROUP, count)) blocks[t] = block_at(picture, component, first + t);
        if (t >= THREADS - BLOCK) factors[t - (THREADS - BLOCK)] = quantiser(picture, component, t - (THREADS - BLOCK));
    }
    PHASE(t) {
        const int b = t / 8, lane = t % 8;
        if (b >= count) continue;
        const u64 four[2] = {blocks[b].source[2 * lane], blocks[b].source[2 * lane + 1]};
        const u64 places = reinterpret_cast<const u64*>(NATURAL)[lane];
        for (int i = 0; i < 8; ++i) {
            const int place = places >> 8 * i & 0xFF;
            const int value = i + lane ? static_cast<short>(four[i / 4] >> 16 * (i % 4)) : blocks[b].dc;
            lines[b][place / 8][place % 8] = value * factors[8 * lane + i];
        }
    }
    PHASE(t) {
        const int b = t / 8, column = t % 8;
        if (b >= count) continue;
        int values[8];
        u32 size = 0;
        for (int i = 0; i < 8; ++i) {
            values[i] = lines[b][i][column];
            size += values[i] < 0 ? -values[i] : values[i];
        }
        sizes[b][column] = size;
        for (int i = 0; i < 8; ++i) values[i] = size > SAFE_SUM ? 0 : values[i];
        inverse_dct<CONSTANT_BITS - FIRST_PASS_BITS>(values);
        for (int i = 0; i < 8; ++i) lines[b][i][column] = values[i];
    }
    PHASE(t) {
        const int b = t / 8, row = t % 8;
        if (b >= count) continue;
        if (row < 4 && sizes[b][row] + sizes[b][row + 4] > SAFE_SUM) flag(picture, OVERFLOW);
        int values[8];
        for (int i = 0; i < 8; ++i) values[i] = lines[b][row][i];
        inverse_dct<CONSTANT_BITS + FIRST_PASS_BITS + 3>(values);
        u64 samples = 0;
        for (int i = 0; i < 8; ++i) samples |= static_cast<u64>(clip8(values[i] + 128)) << 8 * i;
        blocks[b].target[static_cast<i64>(row) * component.stride / 8] = samples;
    }
}

// A sample of the component, the nearest one that there is.
FUNCTION int sample_at(const Component& component, int row, int column) {
    row = lesser(greater(row, 0), component.rows - 1) - 8 * component.top;
    column = lesser(greater(column, 0), component.columns - 1) - 8 * component.left;
    return reinterpret_cast<const u8*>(component.plane)[static_cast<i64>(row) * component.stride + column];
}

// The component's value at a pixel: 3/4 the nearer, 1/4 the further sample, in both directions.
FUNCTION int upsampled(const Component& component, int y, int x) {
    const int odd_row = y & 1, odd_column = x & 1;
    const int row = y >> 1, column = x >> 1, far_row = row + 2 * odd_row - 1, far_column = column + 2 * odd_column - 1;
    switch (component.upsampling) {
        case PLAIN: return sample_at(component, y, x);
        case H2V1: {
            const int near = sample_at(component, y, column), far = sample_at(component, y, far_column);
            return (3 * near + far + 1 + odd_column) >> 2;
        }
        case H1V2: {
            const int near = sample_at(component, row, x), far = sample_at(component, far_row, x);
            return (3 * near + far + 1 + odd_row) >> 2;
        }
        case H2V2: {
            const int near = 3 * sample_at(component, row, column) + sample_at(component, far_row, column);
            const int far = 3 * sample_at(component, row, far_column) + sample_at(component, far_row, far_column);
            return (3 * near + far + 8 - odd_column) >> 4;
        }
        default: return sample_at(component, y / component.v_ratio, x / component.h_ratio);
    }
}

// The pixel's red, green and blue, or grey in the lowest byte.
FUNCTION u32 colour_at(const Picture& picture, int y, int x) {
    const int first = upsampled(picture.components[0], y, x);
    if (picture.colour == GREY) return first * (picture.channels == 3 ? 0x010101 : 1);
    const int second = upsampled(picture.components[1], y, x), third = upsampled(picture.components[2], y, x);
    if (picture.colour == RGB) return first | second << 8 | third << 16;
    const int cb = second - 128, cr = third - 128;  // 16 bits after the binary point
    const int red = clip8(first + ((91881 * cr + 32768) >> 16));
    const int green = clip8(first + ((-22554 * cb - 46802 * cr + 32768) >> 16));
    const int blue = clip8(first + ((116130 * cb + 32768) >> 16));
    return red | green << 8 | blue << 16;
}

// A thread makes PIXELS of the region's pixels that follow each other, and so whole words of its memory.
FUNCTION void make_pixels(int block, const Picture& picture) {
    const int total = picture.height * picture.width;
    PHASE(t) {
        const int first = ((block - picture.first_pixel) * THREADS + t) * PIXELS;
        if (first >= total || state_of(picture).reason != SOUND) continue;
        int y = first / picture.width, x = first - y * picture.width;
        u32 pixels[PIXELS];
        for (int i = 0; i < PIXELS; ++i) {
            pixels[i] = first + i < total ? colour_at(picture, picture.top + y, picture.left + x) : 0;
            if (++x == picture.width) x = 0, ++y;
        }
        u32* target = reinterpret_cast<u32*>(picture.pixels) + first / PIXELS * picture.channels;
        if (picture.channels == 1) {
            target[0] = pixels[0] | pixels[1] << 8 | pixels[2] << 16 | pixels[3] << 24;
        } else {
            target[0] = pixels[0] | pixels[1] << 24;
            target[1] = pixels[1] >> 8 | pixels[2] << 16;
            target[2] = pixels[2] >> 16 | pixels[3] << 8;
        }
    }
}

KERNEL(jpeg_transform, Picture, transform)
KERNEL(jpeg_pixels, Picture, make_pixels)
