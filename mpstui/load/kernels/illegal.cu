// A store to an address that belongs to nobody: error 700 here, and with MPS for every client on the same device too.
//
// Only for a private daemon: the fault takes the neighbours down.

extern "C" __global__ void illegal_store() {
    *reinterpret_cast<volatile int *>(0x10) = 1;
}
