// A plain CUDA C++ client to measure the test kernels against: what the card gives without Python and without PTX.
//
//   nvcc -O3 -arch=native -o load_reference benchmarks/load_reference.cu
//   load_reference fma|triad SECONDS        prints: fma 57.36 TFLOP/s
//
// Written apart from mpstui/load/kernels, with the launch shapes one would choose for the whole device.

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static void check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %d %s\n", what, static_cast<int>(error), cudaGetErrorString(error));
        std::exit(1);
    }
}

constexpr int CHAINS = 16;
constexpr int STEPS = 8192;

__global__ void fma_kernel(float *out, float a, float b) {
    float x[CHAINS];
    for (int k = 0; k < CHAINS; k++) {
        x[k] = threadIdx.x + k;
    }
#pragma unroll 8
    for (int i = 0; i < STEPS; i++) {
#pragma unroll
        for (int k = 0; k < CHAINS; k++) {
            x[k] = x[k] * a + b;
        }
    }
    float sum = 0;
    for (int k = 0; k < CHAINS; k++) {
        sum += x[k];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void triad_kernel(double2 *a, const double2 *b, const double2 *c, double s, size_t n) {
    const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    if (i < n) {
        const double2 left = b[i];
        const double2 right = c[i];
        a[i] = make_double2(left.x + s * right.x, left.y + s * right.y);
    }
}

template <typename Launch>
static double per_second(double seconds, double amount, Launch launch) {
    for (int i = 0; i < 20; i++) {
        launch();
    }
    check(cudaDeviceSynchronize(), "warm-up");
    const auto start = std::chrono::steady_clock::now();
    double done = 0;
    double elapsed = 0;
    while (elapsed < seconds) {
        for (int i = 0; i < 20; i++) {
            launch();
        }
        check(cudaDeviceSynchronize(), "run");
        done += 20 * amount;
        elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return done / elapsed;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    const double seconds = argc > 2 ? std::atof(argv[2]) : 2.0;
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "device");
    if (std::strcmp(mode, "fma") == 0) {
        const int blocks = properties.multiProcessorCount * 16;
        float *out;
        check(cudaMalloc(&out, blocks * 128 * sizeof(float)), "memory");
        const double flop = 2.0 * CHAINS * STEPS * blocks * 128;
        const double rate = per_second(seconds, flop, [&] { fma_kernel<<<blocks, 128>>>(out, 0.999f, 0.5f); });
        std::printf("fma %.2f TFLOP/s\n", rate / 1e12);
    } else if (std::strcmp(mode, "triad") == 0) {
        const size_t n = size_t(1) << 26;  // 1 GiB an array
        double2 *arrays[3];
        for (auto &array : arrays) {
            check(cudaMalloc(&array, n * sizeof(double2)), "memory");
            check(cudaMemset(array, 0, n * sizeof(double2)), "memory");
        }
        const unsigned blocks = static_cast<unsigned>((n + 511) / 512);
        const double rate = per_second(seconds, 3.0 * n * sizeof(double2), [&] {
            triad_kernel<<<blocks, 512>>>(arrays[0], arrays[1], arrays[2], 0.5, n);
        });
        std::printf("triad %.1f GB/s\n", rate / 1e9);
    } else {
        std::fprintf(stderr, "modes: fma SECONDS, triad SECONDS\n");
        return 2;
    }
    return 0;
}
