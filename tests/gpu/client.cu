// A CUDA client whose behaviour the contract suite chooses: the real counterpart of a simulated client.
//
//   client idle S          a context that does nothing for S seconds
//   client busy S          short kernels, one after the other, for S seconds
//   client endless         one kernel that never ends; the process ends when the kernel is ended for it
//   client fault S         short kernels, and an illegal store after S seconds or at SIGUSR1
//   client alloc MIB S     MIB of device memory, held for S seconds
//   client multi D,D… S    one context on each of these devices, idle for S seconds
//
// Prints "ready pid N sm N free MIB" once, and "end CODE NAME" last; exits 0, or 10 after a CUDA error.
// SIGTERM ends all but `endless` early and cleanly. Dies with its parent, so that no test leaves one behind.

#include <cuda_runtime.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sys/prctl.h>
#include <unistd.h>
#include <vector>

namespace {

volatile sig_atomic_t stop_requested = 0;
volatile sig_atomic_t fault_requested = 0;

void on_signal(int number) {
    if (number == SIGUSR1) {
        fault_requested = 1;
    } else {
        stop_requested = 1;
    }
}

double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

[[noreturn]] void end(cudaError_t error) {
    std::printf("end %d %s\n", static_cast<int>(error), cudaGetErrorName(error));
    std::fflush(stdout);
    // No destructors: after a fault they would wait for a server that is being torn down.
    _exit(error == cudaSuccess ? 0 : 10);
}

void check(cudaError_t error) {
    if (error != cudaSuccess) {
        end(error);
    }
}

__global__ void work(unsigned iterations, float *out) {
    float x = static_cast<float>(threadIdx.x);
    for (unsigned i = 0; i < iterations; i++) {
        x = fmaf(x, 0.999f, 1.0f);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

__global__ void never_ending(volatile int *flag) {
    while (*flag == 0) {
    }
}

__global__ void illegal_store() {
    *reinterpret_cast<volatile int *>(0x10) = 1;
}

void ready() {
    int device = 0;
    int sm_count = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device));
    check(cudaMemGetInfo(&free_bytes, &total_bytes));
    std::printf("ready pid %d sm %d free %zu\n", static_cast<int>(getpid()), sm_count, free_bytes >> 20);
    std::fflush(stdout);
}

void sleep_until(double deadline) {
    while (!stop_requested && now() < deadline) {
        usleep(5000);
    }
}

void idle(double seconds) {
    check(cudaFree(nullptr));
    ready();
    sleep_until(now() + seconds);
    check(cudaDeviceSynchronize());
}

void busy(double seconds, bool faulty) {
    float *out = nullptr;
    check(cudaMalloc(&out, 64 * 256 * sizeof(float)));
    work<<<64, 256>>>(1, out);
    check(cudaDeviceSynchronize());
    ready();
    const double deadline = now() + seconds;
    while (!stop_requested && !fault_requested && now() < deadline) {
        work<<<64, 256>>>(1u << 20, out);
        check(cudaDeviceSynchronize());
    }
    if (faulty && !stop_requested) {
        illegal_store<<<1, 1>>>();
        check(cudaDeviceSynchronize());
    }
}

void endless() {
    int *flag = nullptr;
    check(cudaMalloc(&flag, sizeof(int)));
    check(cudaMemset(flag, 0, sizeof(int)));
    check(cudaDeviceSynchronize());
    never_ending<<<8, 128>>>(flag);
    check(cudaGetLastError());
    ready();
    check(cudaDeviceSynchronize());
}

void alloc(size_t mebibytes, double seconds) {
    void *memory = nullptr;
    check(cudaMalloc(&memory, mebibytes << 20));
    check(cudaMemset(memory, 0, mebibytes << 20));
    check(cudaDeviceSynchronize());
    ready();
    sleep_until(now() + seconds);
    check(cudaDeviceSynchronize());
}

void multi(const char *list, double seconds) {
    std::vector<int> devices;
    for (const char *at = list; at != nullptr; at = std::strchr(at, ',')) {
        at += *at == ',';
        devices.push_back(std::atoi(at));
    }
    for (int device : devices) {
        check(cudaSetDevice(device));
        check(cudaFree(nullptr));
    }
    ready();
    sleep_until(now() + seconds);
    for (int device : devices) {
        check(cudaSetDevice(device));
        check(cudaDeviceSynchronize());
    }
}

}  // namespace

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGUSR1, &action, nullptr);

    const char *mode = argc > 1 ? argv[1] : "";
    auto number = [&](int index) { return argc > index ? std::atof(argv[index]) : 0.0; };
    if (std::strcmp(mode, "idle") == 0) {
        idle(number(2));
    } else if (std::strcmp(mode, "busy") == 0) {
        busy(number(2), false);
    } else if (std::strcmp(mode, "endless") == 0) {
        endless();
    } else if (std::strcmp(mode, "fault") == 0) {
        busy(number(2), true);
    } else if (std::strcmp(mode, "alloc") == 0) {
        alloc(static_cast<size_t>(number(2)), number(3));
    } else if (std::strcmp(mode, "multi") == 0 && argc > 2) {
        multi(argv[2], number(3));
    } else {
        std::fprintf(stderr, "modes: idle S, busy S, endless, fault S, alloc MIB S, multi D,D S\n");
        return 2;
    }
    end(cudaSuccess);
}
