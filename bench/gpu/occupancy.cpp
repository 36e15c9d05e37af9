// How many blocks of a kernel a multiprocessor holds at once, by CUDA's own header.

#include <climits>

#include "cuda_occupancy.h"

extern "C" int blocks_at_once(int major, int shared_of_all, int threads, int registers, int shared) {
    cudaOccDeviceProp device = {};
    device.computeMajor = major;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = 2048;
    device.regsPerBlock = device.regsPerMultiprocessor = 1 << 16;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 << 10;
    device.sharedMemPerMultiprocessor = shared_of_all;
    device.reservedSharedMemPerBlock = 1 << 10;
    device.sharedMemPerBlockOptin = shared_of_all - device.reservedSharedMemPerBlock;
    device.numSms = 1;
    cudaOccFuncAttributes kernel = {};
    kernel.maxThreadsPerBlock = INT_MAX;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = shared;
    kernel.numBlockBarriers = 1;
    const cudaOccDeviceState state;
    cudaOccResult found;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state, threads, 0) != CUDA_OCC_SUCCESS)
        return -1;
    return found.activeBlocksPerMultiprocessor;
}
