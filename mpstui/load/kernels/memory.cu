// Writes one word into each 4 KiB page of a block of memory: the memory filler's figure is the GiB that it holds.
//
// The filler allocates block by block until the driver refuses, and so shows where a pinned memory limit ends.

extern "C" __global__ void __launch_bounds__(256) touch(unsigned long long *block, unsigned long long pages) {
    const unsigned long long stride = 4096 / sizeof(unsigned long long);
    for (unsigned long long page = blockIdx.x * 256ull + threadIdx.x; page < pages; page += gridDim.x * 256ull) {
        block[page * stride] = page;
    }
}
