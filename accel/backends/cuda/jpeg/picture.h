// What the host tells the kernels about a JPEG file, which reads it here, and what they tell each other. Pointers are
// addresses in 64 bits. T.81 is the JPEG standard, ITU-T recommendation T.81.

#pragma once
#include "shim.h"

#ifdef __CUDACC__
#define MEMBER __device__ __forceinline__
#define CONSTANT __device__ const
#else
#define MEMBER inline
#define CONSTANT static const
#endif

constexpr int COMPONENTS = 3;
constexpr int TABLES = 2 * COMPONENTS;  // Huffman tables: a DC and an AC one for each component
constexpr int BLOCK = 64;               // coefficients of a block
constexpr int MAX_SLOTS = 10;           // blocks of an MCU (T.81 B.2.3)
constexpr int GROUP = 32;               // blocks that 256 threads transform together
constexpr int PIXELS = 4;               // of a thread
constexpr int PIECES = 2;               // of the stream, which one thread decodes: a subsequence
constexpr int PIECE = 512;              // bits of a piece, behind which it notes where it stands
constexpr int SHORT_PIECE = 256;        // the same in small batches, which then have more threads
constexpr int SPAN = 16;                // bytes of the file that one thread looks at
constexpr int TILE = THREADS * SPAN;
constexpr int DC_LIMIT = 1 << 15;
constexpr int MARKER = 0xFF, FIRST_RESTART = 0xD0, END_OF_IMAGE = 0xD9;

// Why a file is not for these kernels. The host's decoders then say what it is.
enum Reason : int {
    SOUND,
    NO_END,       // no marker behind the scan
    MARKERS,      // not the restart markers, in order, and then EOI
    BAD_TABLE,    // a Huffman table that T.81 or libjpeg forbids
    BAD_CODE,     // bits that are no code, or a run past the end of a block
    BAD_LENGTH,   // an interval that does not hold as many blocks as it should
    DC_RANGE,     // a DC coefficient beyond 16 bits
    OVERFLOW,     // coefficients so large that libjpeg-turbo's 16-bit arithmetic could overflow
    MISFIT,       // a stream that does not come to the next point of its index
};

// How a component is brought to the size of the picture (jinit_upsampler, jdsample.c).
enum Upsampling : int { PLAIN, H2V1, H1V2, H2V2, REPEAT };
enum Colour : int { GREY, YCC, RGB };

// What is found out about a file on the way.
struct State {
    int reason;  // the largest, if several
    int stop;    // offset in the file of the marker behind the scan
    int bits;    // length of the stream: the scan without stuffing and markers
    int unused;
};

// A part of the scan, TILE bytes: what it has, and then what the parts before it have.
struct Tile {
    int kept;      // bytes of the stream
    int restarts;  // restart markers
    int stop;      // offset in the file of its first other marker
    int unused;
};

// A place between two symbols of the stream.
struct Place {
    int bit;
    int within;  // block of the period << 8 | zigzag index of the coefficient that comes next
};

// What decoding a subsequence comes to.
struct Span {
    Place end;
    int blocks;  // that end in it
    int first;   // that end before it
};

// A point of a picture's index (accel/codec/jpeg), between two MCUs of the stream.
struct Point {
    int byte;              // offset in the file of the byte that has the next bit
    i16 dc[COMPONENTS];    // the components' DC predictions
    u16 bit;               // of the byte, from the uppermost on
};

// What one thread decodes of a picture that has an index: from a point on.
struct Segment {
    Point from, to;
    int mcu, mcus;  // the first one's number, and how many
    int whole;      // whether it comes to `to`
};

struct Component {
    u64 plane;                     // u8[8 * (bottom - top)][stride]: samples of the blocks needed
    int h, v;                      // blocks of an MCU, across and down
    int slot;                      // of the first of them among the MCU's blocks
    int h_ratio, v_ratio;          // pixels of a sample
    int upsampling;
    int columns, rows;             // true size in samples
    int left, right, top, bottom;  // blocks needed: half-open ranges
    int stride;
    int quant;                     // offset in the file of its quantisation table (T.81 B.2.4.1)
    int first_group;               // number of its first GROUP among the picture's
    int unused;
};

struct Picture {
    u64 file;          // u8[size]
    u64 stream;        // u32[]: its bits, the first one uppermost
    u64 tiles;         // Tile[]
    u64 edges;         // int[intervals]: the bits at which restart intervals end
    u64 spans;         // Span[]
    u64 tables;        // Tables, see symbols.h
    u64 dc;            // u32[] of the blocks in the stream's order: DC differences, then their sums by component
    u64 coefficients;  // i16[][BLOCK] of the MCUs needed, in the stream's order; zero to begin with
    u64 pixels;        // u8[height][width][channels], with room for whole groups of PIXELS
    u64 state;         // State
    u64 segments;      // Segment[segment_count]; 0: there is no index
    u64 kept;          // u16[]: bytes of the stream up to every SPAN of a tile; 0: no points are wanted
    u64 points;        // Point[]: those of an index, and the one behind the last MCU
    int scan, size;    // offsets in the file: of the entropy-coded data, of the end
    int tile_count, first_tile;
    int intervals, restart;       // restart: MCUs of an interval, the last one perhaps shorter
    int first_span;               // number of the first block of threads over its subsequences
    int mcus, mcu_columns, slots;  // MCUs, MCUs of a row, blocks of an MCU
    int period;                    // blocks after which the tables repeat: slots, or 1 where all components share theirs
    int walked;                    // MCUs whose coefficients are looked at
    int line, points_in_line, step, growth;  // where points are, see points.py; line is 0 if none are wanted
    int point_count, first_point;            // without the last one
    int segment_count, first_segment;  // first_...: number of the first block of threads over them
    int mcu_left, mcu_right, mcu_top, mcu_bottom;  // MCUs needed
    int huffman[TABLES];          // offsets in the file of the tables' counts (T.81 B.2.4.2); 0: not used
    u32 dc_tables, ac_tables;     // for every block of an MCU the number of its table, in three bits
    int colour, channels;
    int top, left, height, width;  // the region
    int first_group, first_pixel;  // numbers of the first blocks of threads over groups and pixels
    int piece;                     // bits of a piece, a power of two of 32 to 512
    Component components[COMPONENTS];
};

FUNCTION State& state_of(const Picture& picture) { return *reinterpret_cast<State*>(picture.state); }

FUNCTION void flag(const Picture& picture, Reason reason) { atomicMax(&state_of(picture).reason, reason); }

// Whether nothing was flagged before; the block's threads see the same, though other blocks may flag something now.
FUNCTION bool is_sound(const Picture& picture, int& reason) {
    PHASE(t) if (t == 0) reason = state_of(picture).reason;
    return reason == SOUND;
}

FUNCTION int component_count(const Picture& picture) { return picture.colour == GREY ? 1 : COMPONENTS; }

// The DC coefficient of a block, from the prefix sums of the component's differences: prediction begins anew with
// every restart interval (T.81 F.1.1.5.1).
FUNCTION int dc_value(const Picture& picture, const Component& component, int mcu, int slot) {
    const u32* sums = reinterpret_cast<const u32*>(picture.dc);
    const int first = mcu / picture.restart * picture.restart;
    u32 value = sums[mcu * picture.slots + slot];
    if (first > 0) value -= sums[(first - 1) * picture.slots + component.slot + component.h * component.v - 1];
    return static_cast<int>(value);
}

// Replace the values by their sums up to and with each (Hillis and Steele, Data parallel algorithms, 1986).
template <class T> FUNCTION void prefix_sums(T (&values)[2][THREADS]) {
    static_assert(THREADS == 256, "an even number of steps, so the sums end up in values[0]");
    for (int step = 1, from = 0; step < THREADS; step *= 2, from ^= 1)
        PHASE(t) values[from ^ 1][t] = values[from][t] + (t >= step ? values[from][t - step] : 0);
}
