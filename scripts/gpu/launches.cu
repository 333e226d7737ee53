// A client that launches an empty kernel as often as it is told, and counts: for scripts/gpu-activity.
//
// Lines on its standard input: `go N` launches N times; `run S` launches for S seconds.
// It answers `N SECONDS` by its own count. The argument is how many threads it has that do nothing.
#include <cuda.h>
#include <cuda_runtime.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

__global__ void nothing() {}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
    for (int i = 0; argc > 1 && i < atoi(argv[1]); i++) std::thread([] { pause(); }).detach();
    cudaError_t error = cudaFree(nullptr);
    if (error != cudaSuccess) return printf("error %d\n", error), 1;
    nothing<<<1, 1>>>();
    cudaDeviceSynchronize();
    printf("ready\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        double begun = now(), amount = atof(strchr(line, ' ') ? strchr(line, ' ') : "0");
        long long done = 0;
        if (line[0] == 'g' && line[1] == 'o')
            for (; done < amount; done++) nothing<<<1, 1>>>();
        else if (line[0] == 'r')
            for (; now() - begun < amount; done += 64)
                for (int i = 0; i < 64; i++) nothing<<<1, 1>>>();
        error = cudaDeviceSynchronize();
        printf("%lld %.6f %d\n", done, now() - begun, (int)error);
        fflush(stdout);
    }
    return 0;
}
