// From coefficients to pixels, with libjpeg-turbo's arithmetic: dequantisation, the inverse DCT (islow.h), fancy
// upsampling (jdsample.c), colour (jdcolor.c).

#include "jpeg/islow.h"
#include "jpeg/picture.h"

// libjpeg-turbo's SIMD code keeps 16 bits between the passes of the transform; see accel/codec/jpeg/idct.py.
constexpr u32 SAFE_SUM = 5900;
constexpr int MAX_QUANT = 8191;

constexpr int LINE = 9;  // an odd length keeps columns in different banks

alignas(8) CONSTANT u8 PLACES[BLOCK] = {  // of a coefficient in its block's lines (T.81 figure A.6)
     0,  1,  9, 18, 10,  2,  3, 11, 19, 27, 36, 28, 20, 12,  4,  5, 13, 21, 29, 37, 45, 54,
    46, 38, 30, 22, 14,  6,  7, 15, 23, 31, 39, 47, 55, 63, 64, 56, 48, 40, 32, 24, 16, 25,
    33, 41, 49, 57, 65, 66, 58, 50, 42, 34, 43, 51, 59, 67, 68, 60, 52, 61, 69, 70,
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
    int dc;             // which may not be among the coefficients
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
    const u64* source = reinterpret_cast<const u64*>(picture.coefficients) + (cell * picture.slots + slot) * (BLOCK / 4);
    const int dc = picture.segments ? static_cast<i16>(source[0])
                                    : dc_value(picture, component, row * picture.mcu_columns + column, slot);
    return {source, reinterpret_cast<u64*>(component.plane) + place / 8,
            -DC_LIMIT < dc && dc < DC_LIMIT ? dc : 0};  // beyond the limit, it is flagged already
}

// Eight threads for each of GROUP blocks that the region needs; the others are not looked at.
FUNCTION void transform(int block, const Picture& picture) {
    SHARED(int, lines[GROUP][8 * LINE]);
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
        const u64 places = reinterpret_cast<const u64*>(PLACES)[lane];
        for (int i = 0; i < 8; ++i) {
            const int value = i + lane ? static_cast<i16>(four[i / 4] >> 16 * (i % 4)) : blocks[b].dc;
            lines[b][places >> 8 * i & 0xFF] = value * factors[8 * lane + i];
        }
    }
    PHASE(t) {
        const int b = t / 8, column = t % 8;
        if (b >= count) continue;
        int values[8];
        u32 size = 0;
        for (int i = 0; i < 8; ++i) {
            values[i] = lines[b][i * LINE + column];
            size += values[i] < 0 ? -values[i] : values[i];
        }
        sizes[b][column] = size;
        for (int i = 0; i < 8; ++i) values[i] = size > SAFE_SUM ? 0 : values[i];
        inverse_dct<CONSTANT_BITS - FIRST_PASS_BITS>(values);
        for (int i = 0; i < 8; ++i) lines[b][i * LINE + column] = values[i];
    }
    PHASE(t) {
        const int b = t / 8, row = t % 8;
        if (b >= count) continue;
        if (row < 4 && sizes[b][row] + sizes[b][row + 4] > SAFE_SUM) flag(picture, OVERFLOW);
        int values[8];
        for (int i = 0; i < 8; ++i) values[i] = lines[b][row * LINE + i];
        inverse_dct<CONSTANT_BITS + FIRST_PASS_BITS + 3>(values);
        for (int i = 0; i < 8; ++i) values[i] += 128;
        const u32 low = packed(values[0], values[1], values[2], values[3]);
        const u32 high = packed(values[4], values[5], values[6], values[7]);
        blocks[b].target[static_cast<i64>(row) * component.stride / 8] = static_cast<u64>(high) << 32 | low;
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

// Those of a thread's pixels that are in one row of the picture: from number `from` to before number `to`.
struct Run {
    int y, x;  // of number 0, if it were in this row
    int from, to;

    MEMBER bool has(int i) const { return from <= i && i < to; }
};

// The component's values at a run's pixels.
FUNCTION void values_at(const Component& component, const Run& run, int (&values)[PIXELS]) {
    if (component.upsampling == PLAIN) {
        const u8* plane = reinterpret_cast<const u8*>(component.plane);
        const u8* row = plane + static_cast<i64>(run.y - 8 * component.top) * component.stride - 8 * component.left + run.x;
        UNROLL for (int i = 0; i < PIXELS; ++i) values[i] = run.has(i) ? read(row + i) : 0;
    } else {
        for (int i = 0; i < PIXELS; ++i) values[i] = run.has(i) ? upsampled(component, run.y, run.x + i) : 0;
    }
}

FUNCTION bool is_halved(const Component& component) {
    return component.upsampling == H2V1 || component.upsampling == H2V2;
}

// The same of two components that have a sample for two pixels of a row: their values side by side in 16 bits each. The
// samples of a column are added up once, and serve all pixels that they are a part of: 3/4 the nearer row, 1/4 the
// further one. Where rows are not halved, both are the same.
FUNCTION void halved_at(const Component& a, const Component& b, const Run& run, u32 (&values)[PIXELS]) {
    const bool rows_too = a.upsampling == H2V2;
    const int near_row = rows_too ? run.y >> 1 : run.y, far_row = rows_too ? near_row - 1 + 2 * (run.y & 1) : run.y;
    const int first = (run.x >> 1) - 1, last = lesser(a.columns, 8 * a.right) - 1;
    const int near = (near_row - 8 * a.top) * a.stride - 8 * a.left;
    const int far = (lesser(greater(far_row, 0), a.rows - 1) - 8 * a.top) * a.stride - 8 * a.left;
    const u8* planes[2] = {reinterpret_cast<const u8*>(a.plane), reinterpret_cast<const u8*>(b.plane)};
    u32 sums[4], sides[PIXELS + 1];
    UNROLL for (int i = 0; i < 4; ++i) {
        const int column = lesser(greater(first + i, 8 * a.left), last);
        const u32 nearer = read(planes[0] + near + column) | read(planes[1] + near + column) << 16;
        const u32 further = read(planes[0] + far + column) | read(planes[1] + far + column) << 16;
        sums[i] = 3 * nearer + further;
    }
    const u32 left = 0x10001 * (rows_too ? 8 : 4), right = 0x10001 * (rows_too ? 7 : 8);
    UNROLL for (int i = 0; i <= PIXELS; ++i)  // a sample's left side, its right one, ...
        sides[i] = 3 * sums[1 + i / 2] + sums[i % 2 ? 2 + i / 2 : i / 2] + (i % 2 ? right : left);
    UNROLL for (int i = 0; i < PIXELS; ++i) values[i] = (run.x & 1 ? sides[i + 1] : sides[i]) >> 4 & 0x0FFF0FFF;
}

// The pixel's red, green and blue.
FUNCTION u32 colour_of(const Picture& picture, int first, int second, int third) {
    if (picture.colour == RGB) return first | second << 8 | third << 16;
    const int red = 91881 * third + (32768 - 128 * 91881);  // 16 bits after the binary point; 128 is no colour
    const int green = -22554 * second - 46802 * third + (32768 + 128 * (22554 + 46802));
    const int blue = 116130 * second + (32768 - 128 * 116130);
    return packed(first + (red >> 16), first + (green >> 16), first + (blue >> 16));
}

// Make a run's pixels: red, green and blue, or grey in the lowest byte.
FUNCTION void make_run(const Picture& picture, const Run& run, u32 (&pixels)[PIXELS]) {
    const Component& second = picture.components[1], &third = picture.components[2];
    int values[COMPONENTS][PIXELS];
    values_at(picture.components[0], run, values[0]);
    if (picture.colour == GREY) {
        const u32 copies = picture.channels == 3 ? 0x010101 : 1;
        UNROLL for (int i = 0; i < PIXELS; ++i) pixels[i] = run.has(i) ? values[0][i] * copies : pixels[i];
        return;
    }
    if (is_halved(second) && second.upsampling == third.upsampling) {
        u32 both[PIXELS];
        halved_at(second, third, run, both);
        UNROLL for (int i = 0; i < PIXELS; ++i) values[1][i] = both[i] & 0xFFFF, values[2][i] = both[i] >> 16;
    } else {
        values_at(second, run, values[1]);
        values_at(third, run, values[2]);
    }
    UNROLL for (int i = 0; i < PIXELS; ++i) {
        const u32 pixel = colour_of(picture, values[0][i], values[1][i], values[2][i]);
        pixels[i] = run.has(i) ? pixel : pixels[i];
    }
}

// A thread makes PIXELS of the region's pixels that follow each other, and so whole words of its memory.
FUNCTION void make_pixels(int block, const Picture& picture) {
    const int total = picture.height * picture.width;
    PHASE(t) {
        const int first = ((block - picture.first_pixel) * THREADS + t) * PIXELS;
        if (first >= total || state_of(picture).reason != SOUND) continue;
        int y = first / picture.width, x = first - y * picture.width;
        u32 pixels[PIXELS] = {};
        for (int from = 0; from < PIXELS && y < picture.height; ++y, x -= picture.width) {
            MET(RUN);
            const Run run = {picture.top + y, picture.left + x, from, lesser(PIXELS, picture.width - x)};
            make_run(picture, run, pixels);
            from = run.to;
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
