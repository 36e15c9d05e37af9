// Included before everything in kernels that are built with -fsanitize=thread: who runs is told to races.cpp, and so is,
// by the compiler, every read and write of memory.

#pragma once

extern "C" {
int race_turn(int number);
bool race_barrier(const char* file, int line);
int race_block(int block, const void* shared, const void* end);
void race_changed(const void* place);
void race_unchanged(const void* place, int size);
// The library's own zero-initialised data, among which is what blocks share.
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
}

#define TURN(i) race_turn(((i) * (2 * SEED + 95) + 31 * SEED) % THREADS)
#define BARRIER() race_barrier(__FILE__, __LINE__)
#define BLOCK_TURN(i, count) race_block((count) - 1 - (i), __bss_start, _end)
#define SHARED(type, name) static type name
// The compiler does not tell of what a call writes.
#define FUNCTION static inline __attribute__((always_inline))
#define ATOMIC static inline __attribute__((no_sanitize_thread, noinline))
#define CHANGED(place) race_changed(place)
#define UNCHANGED(place, size) race_unchanged(place, size)
