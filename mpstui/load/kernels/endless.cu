// A kernel that does not end by itself: for trying out terminate_client and what a busy client does to its neighbours.
//
// It looks at a word of the host's memory, which the worker sets when it is asked to stop: so a graceful stop ends it.

extern "C" __global__ void endless(const volatile int *stop) {
    while (*stop == 0) {
        __nanosleep(1000);
    }
}
