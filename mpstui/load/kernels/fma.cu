// Eight independent chains of fused multiply-adds a thread: figure TFLOP/s. Bound by arithmetic alone, touches no memory.
//
// Each step is x = x * a + b; a thread does 16 floating point operations a step. The sum is stored once, so that the
// compiler keeps the chains. With 0 < a < 1 the values stay finite however long it runs.

extern "C" __global__ void __launch_bounds__(256) fma_chains(float *__restrict__ out, int steps, float a, float b) {
    const float start = static_cast<float>(threadIdx.x);
    float x0 = start, x1 = start + 1.0f, x2 = start + 2.0f, x3 = start + 3.0f;
    float x4 = start + 4.0f, x5 = start + 5.0f, x6 = start + 6.0f, x7 = start + 7.0f;
#pragma unroll 16
    for (int i = 0; i < steps; i++) {
        x0 = fmaf(x0, a, b);
        x1 = fmaf(x1, a, b);
        x2 = fmaf(x2, a, b);
        x3 = fmaf(x3, a, b);
        x4 = fmaf(x4, a, b);
        x5 = fmaf(x5, a, b);
        x6 = fmaf(x6, a, b);
        x7 = fmaf(x7, a, b);
    }
    out[blockIdx.x * 256 + threadIdx.x] = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));
}
