// libcuda.so.1, as far as cuda.core needs it to load cubins and PTX and launch kernels; what a driver refuses, it refuses.
//
// It runs nothing: a launch that it accepts is handed to `fake_runner`. Layouts and numbers are those of cuda.h.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, OLD_DRIVER = 222, INVALID_HANDLE = 400, NOT_FOUND = 500,
    ALREADY_LOCKED = 712, NOT_LOCKED = 713, NOT_SUPPORTED = 801,
};

const std::map<int, std::pair<const char*, const char*>> ERRORS = {
    {SUCCESS, {"CUDA_SUCCESS", "no error"}},
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {OLD_DRIVER, {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
};

constexpr unsigned MOST_BLOCKS = 0x7fffffff, MOST_THREADS = 1024, MOST_SHARED = 48 << 10;
void* const CONTEXT = reinterpret_cast<void*>(0xC0);

struct Library { std::string image; };
struct Kernel {
    std::string name;
    Library* library;
};

// CUlaunchConfig
struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    const void* attributes;
    unsigned attribute_count;
};

std::mutex mutex;
std::set<void*> streams = {nullptr, reinterpret_cast<void*>(1), reinterpret_cast<void*>(2)};  // CU_STREAM_LEGACY, ...
std::set<Library*> libraries;
std::set<Kernel*> kernels;

using Runner = void (*)(const char* kernel, unsigned blocks, void* items, void* owners, void* stream);
Runner runner;
double newest_ptx = 99;
std::map<uintptr_t, size_t> locked;  // host memory: sizes by address
bool locks = true;
size_t moves = SIZE_MAX;  // how many copies and fillings are accepted

// The size of an ELF image: its section headers stand at its end.
uint64_t size_of(const unsigned char* image) {
    uint64_t sections;
    uint16_t size, count;
    std::memcpy(&sections, image + 40, 8);
    std::memcpy(&size, image + 58, 2);
    std::memcpy(&count, image + 60, 2);
    return sections + static_cast<uint64_t>(size) * count;
}

// A cubin has a section for each kernel; the zero behind its name counts.
bool has(const Library& library, const char* name) {
    const bool cubin = library.image[0] == '\x7f';
    const std::string text = cubin ? std::string(".text.") + name + '\0' : std::string(".entry ") + name + "(";
    return library.image.find(text) != std::string::npos;
}

// Kernels go with their library.
Kernel* known(void* function) {
    Kernel* const kernel = static_cast<Kernel*>(function);
    return kernels.count(kernel) && libraries.count(kernel->library) ? kernel : nullptr;
}

}  // namespace

extern "C" {

// -- for the tests ------------------------------------------------------------------------------------------------

void fake_runner(Runner given) { runner = given; }
void fake_stream(void* handle) { streams.insert(handle); }
void fake_newest_ptx(double version) { newest_ptx = version; }
void fake_locks(int may) { locks = may; }
void fake_moves(size_t may) { moves = may; }
int fake_locked() { return static_cast<int>(locked.size()); }

// -- the driver ---------------------------------------------------------------------------------------------------

int cuInit(unsigned) { return SUCCESS; }

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return SUCCESS;
}

int cuGetErrorName(int error, const char** text) {
    const auto found = ERRORS.find(error);
    *text = found == ERRORS.end() ? nullptr : found->second.first;
    return *text ? SUCCESS : INVALID_VALUE;
}

int cuGetErrorString(int error, const char** text) {
    const auto found = ERRORS.find(error);
    *text = found == ERRORS.end() ? nullptr : found->second.second;
    return *text ? SUCCESS : INVALID_VALUE;
}

int cuCtxGetCurrent(void** context) {
    *context = CONTEXT;
    return SUCCESS;
}

int cuCtxGetDevice(int* device) {
    *device = 0;
    return SUCCESS;
}

// Whole pages, each once, as portable memory.
int cuMemHostRegister_v2(void* start, size_t size, unsigned flags) {
    const std::lock_guard<std::mutex> lock(mutex);
    const uintptr_t address = reinterpret_cast<uintptr_t>(start);
    if (!locks) return NOT_SUPPORTED;
    if (address % 4096 || size % 4096 || !size || flags != 1) return INVALID_VALUE;
    for (const auto& [other, taken] : locked)
        if (address < other + taken && other < address + size) return ALREADY_LOCKED;
    locked[address] = size;
    return SUCCESS;
}

int cuMemHostUnregister(void* start) {
    const std::lock_guard<std::mutex> lock(mutex);
    return locked.erase(reinterpret_cast<uintptr_t>(start)) ? SUCCESS : NOT_LOCKED;
}

namespace {
int may_move(void* stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!streams.count(stream)) return INVALID_HANDLE;
    return moves && moves-- ? SUCCESS : NOT_SUPPORTED;
}
}  // namespace

int cuMemcpyHtoDAsync_v2(uint64_t target, const void* source, size_t size, void* stream) {
    const int refused = may_move(stream);
    if (!refused) std::memcpy(reinterpret_cast<void*>(target), source, size);
    return refused;
}

int cuMemcpyDtoHAsync_v2(void* target, uint64_t source, size_t size, void* stream) {
    const int refused = may_move(stream);
    if (!refused) std::memcpy(target, reinterpret_cast<const void*>(source), size);
    return refused;
}

int cuMemsetD8Async(uint64_t target, unsigned char value, size_t size, void* stream) {
    const int refused = may_move(stream);
    if (!refused) std::memset(reinterpret_cast<void*>(target), value, size);
    return refused;
}

int cuStreamGetCtx(void* stream, void** context) {
    *context = CONTEXT;
    return streams.count(stream) ? SUCCESS : INVALID_HANDLE;
}

// Nobody may destroy a stream of torch's: launches on it fail from then on.
int cuStreamDestroy_v2(void* stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    return streams.erase(stream) ? SUCCESS : INVALID_HANDLE;
}

int cuLibraryLoadData(void** library, const unsigned char* code, void*, void**, unsigned, void*, void**, unsigned) {
    const std::lock_guard<std::mutex> lock(mutex);
    const char* const text = reinterpret_cast<const char*>(code);
    if (!code) return INVALID_IMAGE;
    const bool cubin = std::memcmp(code, "\x7f" "ELF", 4) == 0;
    if (!cubin) {
        const char* const version = std::strstr(text, "\n.version ");
        if (!version) return INVALID_IMAGE;
        if (std::strtod(version + 10, nullptr) > newest_ptx) return OLD_DRIVER;
    }
    Library* const found = new Library{{text, cubin ? size_of(code) : std::strlen(text)}};
    libraries.insert(found);
    *library = found;
    return SUCCESS;
}

int cuLibraryUnload(void* library) {
    const std::lock_guard<std::mutex> lock(mutex);
    Library* const found = static_cast<Library*>(library);
    return libraries.erase(found) ? SUCCESS : INVALID_HANDLE;  // its address is not used again
}

int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
    const std::lock_guard<std::mutex> lock(mutex);
    Library* const found = static_cast<Library*>(library);
    if (!libraries.count(found)) return INVALID_HANDLE;
    if (!has(*found, name)) return NOT_FOUND;
    Kernel* const made = *kernels.insert(new Kernel{name, found}).first;
    *kernel = made;
    return SUCCESS;
}

int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void** extra) {
    std::string name;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        const Kernel* const kernel = known(function);
        if (!kernel || !streams.count(config->stream)) return INVALID_HANDLE;
        name = kernel->name;
    }
    const unsigned *grid = config->grid, *block = config->block;
    if (grid[0] == 0 || grid[0] > MOST_BLOCKS || grid[1] != 1 || grid[2] != 1) return INVALID_VALUE;
    if (block[0] == 0 || block[0] > MOST_THREADS || block[1] != 1 || block[2] != 1) return INVALID_VALUE;
    if (config->shared > MOST_SHARED || config->attribute_count != 0 || !parameters || extra) return INVALID_VALUE;
    if (block[0] != 256 || config->shared != 0) return INVALID_VALUE;  // __launch_bounds__, and no such memory declared
    void* values[2];
    for (int i = 0; i < 2; ++i) std::memcpy(values + i, parameters[i], sizeof(void*));
    runner(name.c_str(), grid[0], values[0], values[1], config->stream);
    return SUCCESS;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
    const Config config = {{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
    return cuLaunchKernelEx(&config, function, parameters, extra);
}

int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* status) {
    Dl_info own;
    dladdr(reinterpret_cast<void*>(&fake_runner), &own);
    void* const self = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = dlsym(self, name);
    if (!*function) *function = dlsym(self, (std::string(name) + "_v2").c_str());
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
}
