// STREAM triad a = b + s * c on 16-byte words: figure GB/s, 48 bytes a word. Bound by the bandwidth of the device's memory.
//
// Blocks walk over chunks of 4 x 256 words, all loads of a chunk under way before the first store, so that a few resident
// blocks keep enough bytes in flight. Any number of words, any number of blocks.

#define WORDS 4

extern "C" __global__ void __launch_bounds__(256)
    triad(float4 *__restrict__ a, const float4 *__restrict__ b, const float4 *__restrict__ c, float s,
          unsigned long long words) {
    const unsigned long long chunk = 256ull * WORDS;
    for (unsigned long long base = blockIdx.x * chunk + threadIdx.x; base < words; base += gridDim.x * chunk) {
        float4 left[WORDS], right[WORDS];
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            const unsigned long long i = base + 256ull * k;
            if (i < words) {
                left[k] = b[i];
                right[k] = c[i];
            }
        }
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            const unsigned long long i = base + 256ull * k;
            if (i < words) {
                a[i] = make_float4(left[k].x + s * right[k].x, left[k].y + s * right[k].y, left[k].z + s * right[k].z,
                                   left[k].w + s * right[k].w);
            }
        }
    }
}
