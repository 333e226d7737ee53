// A grid of a few blocks that ends after some microseconds: figure launches/s. Bound by the cost of a launch.
//
// The kind of load that gains most from MPS: each launch leaves nearly all of the device idle.

extern "C" __global__ void __launch_bounds__(64) tick(float *__restrict__ out, int steps) {
    float x = static_cast<float>(threadIdx.x);
    for (int i = 0; i < steps; i++) {
        x = fmaf(x, 0.999f, 1.0f);
    }
    out[blockIdx.x * 64 + threadIdx.x] = x;
}
