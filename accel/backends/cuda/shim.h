// One source for two machines: NVRTC compiles these kernels for the GPU, g++ for the host (`host.py`).
//
// A kernel is written as phases. PHASE(t) { ... } is done by every thread t of a block; a phase begins when the one
// before is complete in all of them. On the GPU that is a barrier after each phase, on the host a plain loop over the
// threads, so it runs at the speed of ordinary code, in any number of host threads at once (nothing is global).
//
//     SHARED(type, name);          what the threads of a block share
//     OWNED(type, name);           what a thread keeps from one phase to the next: OWN(name, t)
//
// Phases may stand in loops and branches that all threads of the block take alike. `continue` ends a thread's phase.

#pragma once

using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

constexpr int THREADS = 256;  // of a block, always
constexpr int WARP = 32;      // threads next to each other that should read next to each other

#ifdef __CUDACC__

#define FUNCTION static __device__ __forceinline__
#define SHARED(type, name) __shared__ type name
#define OWNED(type, name) type name[1]
#define OWN(name, t) name[(t) * 0]
#define PHASE(t) for (int t = threadIdx.x, left_ = 1; left_; left_ = 0, __syncthreads())
#define UNROLL _Pragma("unroll")
#define TWICE _Pragma("unroll 2")

// What no thread writes while the kernel runs.
template <class T> FUNCTION T read(const T* at) { return __ldg(at); }

// Values clamped to bytes, the first one lowest: two instructions.
FUNCTION u32 packed(int a, int b, int c, int d = 0) {
    u32 high, all;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(d), "r"(c), "r"(0));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(b), "r"(a), "r"(high));
    return all;
}

// The upper word of both, shifted to the left by the number of bits modulo 32.
FUNCTION u32 funnel(u32 high, u32 low, int bits) { return __funnelshift_l(low, high, bits); }

FUNCTION int count_bits(u32 word) { return __popc(word); }
FUNCTION int lowest_bit(u32 word) { return __ffs(word) - 1; }
FUNCTION int highest_bit(u32 word) { return 31 - __clz(word); }
FUNCTION u32 reversed(u32 word) { return __byte_perm(word, 0, 0x0123); }

#define MET(what)

// Byte number `which` of a word.
FUNCTION int byte_of(u32 word, int which) { return __byte_perm(word, 0, 0x4440 | which); }

// extern "C" name(items, owners): block b works on items[owners[b]]
#define KERNEL(name, Item, body)                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 3) name(const Item* items, const int* owners) {        \
        body(static_cast<int>(blockIdx.x), items[owners[blockIdx.x]]);                                        \
    }

#else

#include <cmath>
#include <cstring>

// What a build of the tests may have otherwise (rig/races.h): a kernel must depend neither on the order of its blocks
// nor on that of a block's threads.
#ifndef TURN
#define TURN(i) (i)  // the thread that is the i-th to do a phase
#endif
#ifndef BLOCK_TURN
#define BLOCK_TURN(i, count) (i)  // the block that is the i-th
#endif
#ifndef BARRIER
#define BARRIER() false  // behind a phase
#endif
#ifndef MET
#define MET(what)  // a case in the code: how often one comes is counted by bench/gpu/trips.cu
#endif
#ifndef SHARED
#define SHARED(type, name) type name
#endif
#ifndef FUNCTION
#define FUNCTION static inline
#endif
#ifndef UNCHANGED
#define UNCHANGED(place, size)  // what nobody writes while the kernel runs
#endif
#ifndef ATOMIC
#define ATOMIC FUNCTION
#define CHANGED(place)
#endif

#define OWNED(type, name) type name[THREADS]
#define OWN(name, t) name[t]
#define UNROLL
#define TWICE
#define PHASE(t) for (int turn_ = 0, t = TURN(0); turn_ < THREADS || BARRIER(); ++turn_, t = TURN(turn_))

#define KERNEL(name, Item, body)                                                                              \
    extern "C" void name(int blocks, const Item* items, const int* owners) {                                  \
        for (int turn = 0; turn < blocks; ++turn) {                                                           \
            const int block = BLOCK_TURN(turn, blocks);                                                       \
            body(block, items[owners[block]]);                                                                \
        }                                                                                                     \
    }                                                                                                         \
    extern "C" int name##_item_size() { return sizeof(Item); }                                                \
    extern "C" int name##_item_alignment() { return alignof(Item); }

template <class T> FUNCTION T read(const T* at) {
    UNCHANGED(at, sizeof(T));
    return *at;
}

FUNCTION u32 clamped(int value) { return value < 0 ? 0 : value > 255 ? 255 : value; }
FUNCTION u32 packed(int a, int b, int c, int d = 0) {
    return clamped(a) | clamped(b) << 8 | clamped(c) << 16 | clamped(d) << 24;
}

FUNCTION u32 funnel(u32 high, u32 low, int bits) {
    return static_cast<u32>(((static_cast<u64>(high) << 32 | low) << (bits & 31)) >> 32);
}

FUNCTION int count_bits(u32 word) { return __builtin_popcount(word); }
FUNCTION int lowest_bit(u32 word) { return __builtin_ctz(word); }
FUNCTION int highest_bit(u32 word) { return 31 - __builtin_clz(word); }
FUNCTION u32 reversed(u32 word) { return __builtin_bswap32(word); }

FUNCTION int byte_of(u32 word, int which) { return word >> 8 * which & 255; }

ATOMIC void atomicMin(int* place, int value) { CHANGED(place); if (value < *place) *place = value; }
ATOMIC void atomicMax(int* place, int value) { CHANGED(place); if (value > *place) *place = value; }

template <class T> ATOMIC T atomicExch(T* place, T value) {
    CHANGED(place);
    const T before = *place;
    *place = value;
    return before;
}

template <class T> ATOMIC T atomicAdd(T* place, T value) {
    CHANGED(place);
    const T before = *place;
    *place = before + value;
    return before;
}

FUNCTION void __threadfence() {}

#endif

template <class T> FUNCTION T lesser(T a, T b) { return b < a ? b : a; }
template <class T> FUNCTION T greater(T a, T b) { return a < b ? b : a; }
FUNCTION int clip8(int value) { return lesser(greater(value, 0), 255); }
