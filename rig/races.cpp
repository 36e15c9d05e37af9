// What kernels built with -fsanitize=thread and races.h report to. It finds, whatever the order in which the host runs
// the threads, what would depend on it on a GPU:
//
//   - two threads of a block that reach the same byte between two barriers, one of them writing. Code outside of a
//     phase is run by all threads, between the barrier behind the phase before it and that behind the next one.
//   - two blocks of a launch that do, one of them writing; atomic changes beside plain reads excepted.
//   - what a block shares, read before it was written;
//   - what is written in a launch and in the same one read as what nobody writes, through caches that do not notice.
//
// Atomic changes do not conflict with each other. What lies on the host's stack is a thread's own.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

using std::uint64_t;
using std::uintptr_t;

namespace {

constexpr int NOBODY = -1, ALL = -2, SEVERAL = -3;
constexpr uint64_t NONE = 0, MORE = ~0ull;
constexpr uintptr_t PAGE = 4096, STACK = 8 << 20;

enum Kind { READ, WRITE, CHANGE, READ_ONLY };
const char* const NAMES[] = {"read", "write", "atomic", "read of what nobody writes"};

// Of one byte: which threads have reached it since the last barrier, and which blocks in this launch.
struct Byte {
    uint64_t interval, launch, written_by;
    int threads[3];
    uint64_t blocks[3];
    bool read_only;  // in this launch
};

struct Page { Byte bytes[PAGE]; };

std::map<uintptr_t, Page*> pages;
uintptr_t last_number = ~0ull;
Page* last_page;

uint64_t interval = 1, launch = 1, block = 1;
int thread = ALL;
uintptr_t shared_start, shared_end, stack_end;
using Finding = std::tuple<const char*, Kind, Kind, const void*>;  // what, by whom, and where in the code
std::map<Finding, int> found;

using Site = std::pair<std::string, int>;
Site forgotten, latest;
std::set<Site> reached;

Byte& byte_at(uintptr_t address) {
    const uintptr_t number = address / PAGE;
    if (number != last_number) {
        Page*& page = pages[number];
        if (!page) page = static_cast<Page*>(std::calloc(1, sizeof(Page)));
        last_number = number;
        last_page = page;
    }
    return last_page->bytes[address % PAGE];
}

void note(const char* what, Kind one, Kind other, const void* place) { ++found[{what, one, other, place}]; }

std::string described(const Finding& finding) {
    const auto& [what, one, other, place] = finding;
    Dl_info info = {};
    dladdr(place, &info);
    char text[400];
    std::snprintf(text, sizeof text, "%s: %s and %s\t%s\t%#zx", what, NAMES[one], NAMES[other],
                  info.dli_fname ? info.dli_fname : "?",
                  reinterpret_cast<uintptr_t>(place) - reinterpret_cast<uintptr_t>(info.dli_fbase));
    return text;
}

bool harmless(Kind one, Kind other) { return one == other && one != WRITE; }

void among_threads(Byte& byte, Kind kind, const void* place) {
    if (byte.interval != interval) {
        byte.interval = interval;
        for (int& each : byte.threads) each = NOBODY;
    }
    for (int other = READ; other <= CHANGE; ++other) {
        const int who = byte.threads[other];
        if (who == NOBODY || harmless(kind, static_cast<Kind>(other))) continue;
        if (who != thread || who == SEVERAL) note("threads", kind, static_cast<Kind>(other), place);
    }
    int& own = byte.threads[kind];
    own = own == NOBODY || own == thread ? thread : SEVERAL;
}

void among_blocks(Byte& byte, Kind kind, const void* place) {
    if (byte.launch != launch) {
        byte.launch = launch;
        for (uint64_t& each : byte.blocks) each = NONE;
        byte.read_only = false;
    }
    if (kind == READ_ONLY) {
        for (const Kind other : {WRITE, CHANGE})
            if (byte.blocks[other] != NONE) note("launch", kind, other, place);
        byte.read_only = true;
        return;
    }
    if (kind != READ && byte.read_only) note("launch", kind, READ_ONLY, place);
    for (int other = READ; other <= CHANGE; ++other) {
        const uint64_t who = byte.blocks[other];
        if (who == NONE || (kind != WRITE && other != WRITE)) continue;
        if (who != block) note("blocks", kind, static_cast<Kind>(other), place);
    }
    uint64_t& of = byte.blocks[kind];
    of = of == NONE || of == block ? block : MORE;
}

void reach_byte(uintptr_t address, Kind kind, const void* place) {
    const bool shared = shared_start <= address && address < shared_end;
    Byte& byte = byte_at(address);
    if (shared && kind == READ_ONLY) return note("launch, shared", kind, kind, place);
    if (kind != READ_ONLY) among_threads(byte, kind, place);
    if (shared) {
        if (kind == WRITE) byte.written_by = block;
        else if (byte.written_by != block) note("shared, not written", kind, kind, place);
    } else {
        among_blocks(byte, kind, place);
    }
}

void reach(const void* memory, uint64_t size, Kind kind, const void* place) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    if (stack_end - STACK < address && address < stack_end) return;
    for (uint64_t i = 0; i < size; ++i) reach_byte(address + i, kind, place);
}

}  // namespace

extern "C" {

int race_turn(int number) {
    thread = number;
    return number;
}

bool race_barrier(const char* file, int line) {
    thread = ALL;
    const Site site = {file, line};
    if (!(site == forgotten)) ++interval;
    if (site != latest) reached.insert(latest = site);
    return false;
}

// From now on the barriers behind the phase at that line are not there.
void race_forget(const char* file, int line) { forgotten = {file, line}; }

// Where there are phases: the files and lines of those that were reached.
int race_sites(char* text, int size) {
    std::string all;
    for (const Site& each : reached) all += each.first + "\t" + std::to_string(each.second) + "\n";
    return std::snprintf(text, size, "%s", all.c_str());
}

// A launch begins with a call of race_launch, from the host.
void race_launch() { ++launch; }

int race_block(int number, const void* shared, const void* end) {
    ++block;
    ++interval;
    thread = ALL;
    shared_start = reinterpret_cast<uintptr_t>(shared);
    shared_end = reinterpret_cast<uintptr_t>(end);
    stack_end = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) + (64 << 10);  // the kernel's frame lies above
    return number;
}

void race_unchanged(const void* memory, int size) { reach(memory, size, READ_ONLY, __builtin_return_address(0)); }

void race_changed(const void* memory) { reach(memory, 4, CHANGE, __builtin_return_address(0)); }

// What was found: a line of text, a library and an offset in it, and how often. Forgets it.
int race_report(char* text, int size) {
    std::string all;
    for (const auto& each : found) all += described(each.first) + "\t" + std::to_string(each.second) + "\n";
    found.clear();
    return std::snprintf(text, size, "%s", all.c_str());
}

#define ACCESS(size)                                                                                              \
    void __tsan_read##size(void* at) { reach(at, size, READ, __builtin_return_address(0)); }                      \
    void __tsan_write##size(void* at) { reach(at, size, WRITE, __builtin_return_address(0)); }                    \
    void __tsan_unaligned_read##size(void* at) { reach(at, size, READ, __builtin_return_address(0)); }            \
    void __tsan_unaligned_write##size(void* at) { reach(at, size, WRITE, __builtin_return_address(0)); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* at, uint64_t size) { reach(at, size, READ, __builtin_return_address(0)); }
void __tsan_write_range(void* at, uint64_t size) { reach(at, size, WRITE, __builtin_return_address(0)); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
