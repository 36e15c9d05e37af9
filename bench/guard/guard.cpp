// An allocator that finds memory errors, preloaded into a process (LD_PRELOAD; Linux with glibc).
//
// While it is armed, each block lies on pages of its own between pages that may not be touched, and is never given out
// again: its pages become untouchable when it is freed. So what is read or written past the end (or before the start)
// of a block, or after free, is SIGSEGV at the instruction that does it. All pages come from one reservation, in
// ascending order, and untouchable neighbours are one mapping; the number of mappings is bounded by the live blocks.
// Disarmed, or where there is no room, glibc's allocator serves.

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t SPAN = size_t(1) << 40;
constexpr size_t PAGES = SPAN / PAGE;
constexpr long MOST_LIVE = 24000;  // each takes two mappings; a process may have 65530 (vm.max_map_count)
constexpr size_t LEAST_ALIGNED = 16;
constexpr unsigned char NEW = 0xA5, MARGIN = 0xC7;
constexpr uint64_t FREED = uint64_t(1) << 63;
enum { OFF, BEHIND, BEFORE };

struct Entry {     // of the page that a block starts on
    uint64_t size; // with FREED
    uint64_t start;
};

char *arena = nullptr;
Entry *entries = nullptr;
std::atomic<int> mode{OFF};
std::atomic<size_t> least{0}, most{SIZE_MAX}, next_page{1};
std::atomic<long> served{0}, live{0}, refused{0};
struct sigaction previous[2];

bool is_guarded(const void *pointer) { return arena && size_t((const char *)pointer - arena) < SPAN; }

Entry &entry_of(const void *pointer) { return entries[size_t((const char *)pointer - arena) / PAGE]; }

size_t page_count(size_t size) { return (size + PAGE - 1) / PAGE; }

[[noreturn]] void die(const char *what, const void *pointer, size_t size) {
    char text[160];
    int length = snprintf(text, sizeof text, "guard: %s: a block of %zu bytes at %p\n", what, size, pointer);
    if (write(2, text, length) < 0) _exit(134);
    abort();
}

void *guarded(size_t size, size_t alignment, bool clear) {
    if (size == 0) size = 1;
    size_t count = page_count(size), page = PAGES;
    if (alignment > PAGE || size > SPAN / 16) return nullptr;
    if (live.fetch_add(1) < MOST_LIVE) page = next_page.fetch_add(count + 1);
    if (page + count + 1 >= PAGES || mprotect(arena + page * PAGE, count * PAGE, PROT_READ | PROT_WRITE)) {
        live--, refused++;
        return nullptr;
    }
    served++;
    char *begin = arena + page * PAGE, *end = begin + count * PAGE, *block = begin;
    if (mode.load() != BEFORE) block = end - (size + alignment - 1) / alignment * alignment;
    entry_of(begin) = {size, uint64_t(block)};
    memset(begin, MARGIN, block - begin);
    if (!clear) memset(block, NEW, size);  // pages are new, and zero
    memset(block + size, MARGIN, end - block - size);
    return block;
}

size_t size_of(void *pointer) {
    Entry &entry = entry_of(pointer);
    if (entry.start != uint64_t(pointer)) die("not the start of a block", pointer, entry.size & ~FREED);
    if (entry.size & FREED) die("freed twice, or used after it was freed", pointer, entry.size & ~FREED);
    return entry.size;
}

void release(void *pointer) {
    size_t size = size_of(pointer);
    char *block = (char *)pointer, *begin = arena + (block - arena) / PAGE * PAGE;
    char *end = begin + page_count(size) * PAGE;
    for (char *at = begin; at < end; at++) {
        if (at == block) at += size;
        if (at < end && (unsigned char)*at != MARGIN) die("its margin was written to", pointer, size);
    }
    entry_of(pointer).size = size | FREED;
    madvise(begin, end - begin, MADV_DONTNEED);
    mprotect(begin, end - begin, PROT_NONE);
    live--;
}

bool wanted(size_t size) {
    return mode.load(std::memory_order_relaxed) != OFF && size >= least.load() && size <= most.load();
}

void *allocate(size_t size, size_t alignment, bool clear) {
    if (wanted(size))
        if (void *block = guarded(size, alignment, clear)) return block;
    if (alignment > LEAST_ALIGNED) return __libc_memalign(alignment, size);
    return clear ? __libc_calloc(1, size) : __libc_malloc(size);
}

void *resize(void *pointer, size_t size, size_t alignment) {
    if (!pointer) return allocate(size, alignment, false);
    if (!is_guarded(pointer)) return __libc_realloc(pointer, size);
    size_t old = size_of(pointer);
    void *made = allocate(size, alignment, false);
    if (!made) return nullptr;
    memcpy(made, pointer, old < size ? old : size);
    release(pointer);
    return made;
}

// Say which block it was, and let the signal come again to whoever else handles it (Python's faulthandler).
void tell(int signal, siginfo_t *info, void *) {
    char text[200];
    char *at = (char *)info->si_addr;
    if (is_guarded(at)) {
        size_t page = (at - arena) / PAGE, behind = page, ahead = page + 1;
        while (behind > 0 && !entries[behind].size) behind--;
        while (ahead < PAGES - 1 && ahead < page + 2 && !entries[ahead].size) ahead++;
        Entry *entry = &entries[behind];
        if (mode.load() == BEFORE && entries[ahead].size) {
            char *end = (char *)entry->start + page_count(entry->size & ~FREED) * PAGE;
            if (at >= end) entry = &entries[ahead];
        }
        int length = snprintf(text, sizeof text, "guard: access to byte %ld of a %sblock of %lu bytes\n",
                              long(at - (char *)entry->start), entry->size & FREED ? "freed " : "",
                              (unsigned long)(entry->size & ~FREED));
        if (write(2, text, length) < 0) _exit(139);
    }
    sigaction(signal, &previous[signal == SIGBUS], nullptr);
}

}  // namespace

extern "C" {

void *malloc(size_t size) noexcept { return allocate(size, LEAST_ALIGNED, false); }

void *calloc(size_t count, size_t size) noexcept {
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) return errno = ENOMEM, nullptr;
    return allocate(total, LEAST_ALIGNED, true);
}

void *realloc(void *pointer, size_t size) noexcept { return resize(pointer, size, LEAST_ALIGNED); }

void free(void *pointer) noexcept {
    if (is_guarded(pointer)) release(pointer);
    else __libc_free(pointer);
}

void *memalign(size_t alignment, size_t size) noexcept {
    return allocate(size, alignment < LEAST_ALIGNED ? LEAST_ALIGNED : alignment, false);
}

void *aligned_alloc(size_t alignment, size_t size) noexcept { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) noexcept {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1))) return EINVAL;
    *result = memalign(alignment, size);
    return *result ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *pointer) noexcept {
    if (is_guarded(pointer)) return size_of(pointer);
    static auto real = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    return real(pointer);
}

// NumPy's allocator (see numpy/ndarraytypes.h, PyDataMemAllocator): nothing kept for the next array, and the data of an
// array ends at its wall to the byte, for its size is a multiple of what its elements are aligned to.
static size_t fitting(size_t size) {
    size_t lowest = size & -size;
    return size == 0 || lowest > LEAST_ALIGNED ? LEAST_ALIGNED : lowest;
}
void *guard_numpy_malloc(void *, size_t size) { return allocate(size, fitting(size), false); }
void *guard_numpy_calloc(void *, size_t count, size_t size) { return allocate(count * size, fitting(count * size), true); }
void *guard_numpy_realloc(void *, void *pointer, size_t size) { return resize(pointer, size, fitting(size)); }
void guard_numpy_free(void *, void *pointer, size_t) { free(pointer); }

// Blocks of `smallest` to `largest` bytes lie between walls from now on. kind 1: a block's end touches a wall; 2: its
// start. Returns whether it is possible.
int guard_arm(int kind, size_t smallest, size_t largest) {
    if (!arena) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *table = mmap(nullptr, PAGES * sizeof(Entry), PROT_READ | PROT_WRITE, flags, -1, 0);
        void *span = mmap(nullptr, SPAN, PROT_NONE, flags, -1, 0);
        if (table == MAP_FAILED || span == MAP_FAILED || sysconf(_SC_PAGESIZE) != long(PAGE)) return 0;
        entries = (Entry *)table;
        arena = (char *)span;
    }
    least = smallest, most = largest, mode = kind;
    struct sigaction action, present;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = tell;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int signal : {SIGSEGV, SIGBUS}) {
        sigaction(signal, nullptr, &present);
        if (present.sa_sigaction == tell) continue;
        previous[signal == SIGBUS] = present;
        sigaction(signal, &action, nullptr);
    }
    return 1;
}

void guard_disarm() { mode = OFF; }

// Blocks between walls so far, and those that there was no room for.
void guard_counts(long *result) { result[0] = served, result[1] = refused, result[2] = live; }

}  // extern "C"
