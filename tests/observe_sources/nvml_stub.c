/* A libnvidia-ml.so.1 of two devices, with the prototypes of nvml.h: the functions that mpstui calls, and where they put
   their answers. The first device has 150 MPS clients, more than a caller has room for at first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *Handle;
typedef unsigned int uint;
typedef unsigned long long ull;

struct process { uint pid; ull memory; uint gpu_instance, compute_instance; };
struct support { uint version, supported; };
struct metric { uint id; int code; double value; char *short_name, *long_name, *unit; };
struct metrics { uint version, count; Handle first, second; struct metric metrics[333]; };
struct pci { char legacy[16]; uint domain, bus, device, id, subsystem; char address[32]; };
struct event { Handle device; ull kind, data; uint gpu_instance, compute_instance; };

static int devices[2], event_set;
static Handle registered;
static ull kinds;

static int number(Handle device) { return (int)((int *)device - devices); }

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *text, uint size) { snprintf(text, size, "580.159.04"); return 0; }
int nvmlDeviceGetCount_v2(uint *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint index, Handle *device) { *device = &devices[index]; return index < 2 ? 0 : 2; }
int nvmlDeviceGetUUID(Handle d, char *text, uint size) { snprintf(text, size, "GPU-%d", number(d)); return 0; }
int nvmlDeviceGetName(Handle d, char *text, uint size) { snprintf(text, size, "Stub %d", number(d)); return 0; }
int nvmlDeviceGetCudaComputeCapability(Handle d, int *major, int *minor) { *major = 9; *minor = number(d); return 0; }
int nvmlDeviceGetNumGpuCores(Handle d, uint *count) { *count = 16896; return 0; }
int nvmlDeviceGetAttributes_v2(Handle d, uint *attributes) {
    if (number(d) == 0) return 3;
    memset(attributes, 0, 40);
    attributes[0] = 60;
    return 0;
}
int nvmlDeviceGetMemoryInfo(Handle d, ull *memory) {
    memory[0] = 85520809984ull, memory[1] = 84940029952ull, memory[2] = 580780032ull;
    return 0;
}
int nvmlDeviceGetComputeMode(Handle d, uint *mode) { *mode = 3; return 0; }
int nvmlDeviceGetMigMode(Handle d, uint *now, uint *later) { *now = number(d), *later = 1; return 0; }
int nvmlDeviceGetPersistenceMode(Handle d, uint *mode) { *mode = 1; return 0; }
int nvmlDeviceGetUtilizationRates(Handle d, uint *rates) { rates[0] = 55, rates[1] = 66; return 0; }
int nvmlDeviceGetPowerUsage(Handle d, uint *milliwatts) { *milliwatts = 71240; return 0; }
int nvmlDeviceGetTemperature(Handle d, uint sensor, uint *celsius) { *celsius = 31 + sensor; return 0; }

static int list(uint *count, struct process *found, uint there) {
    uint room = *count;
    *count = there;
    if (room < there || !found) return 7;
    for (uint i = 0; i < there; i++)
        found[i] = (struct process){100 + i, i == 1 ? ~0ull : (1ull << 33) + i, ~0u, ~0u};
    return 0;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle d, uint *count, struct process *found) {
    return list(count, found, number(d) ? 0 : 150);
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle d, uint *count, struct process *found) { return list(count, found, 3); }

int nvmlGpmQueryDeviceSupport(Handle d, struct support *found) {
    found->supported = 1;
    return found->version == 1 ? 0 : 25;
}
int nvmlGpmSampleAlloc(Handle *sample) { *sample = malloc(8); return 0; }
int nvmlGpmSampleFree(Handle sample) { free(sample); return 0; }
int nvmlGpmSampleGet(Handle d, int *sample) { *sample = number(d) + 7; return 0; }
int nvmlGpmMetricsGet(struct metrics *asked) {
    for (uint i = 0; i < asked->count; i++) {
        struct metric *metric = &asked->metrics[i];
        metric->code = 0, metric->value = metric->id * 1.5 + *(int *)asked->first + *(int *)asked->second;
    }
    return asked->version == 1 ? 0 : 25;
}

int nvmlDeviceGetPciInfo_v3(Handle d, struct pci *found) {
    memset(found, 0, sizeof *found);
    sprintf(found->address, "00000000:%02x:00.0", 6 + number(d));
    return 0;
}
int nvmlEventSetCreate(Handle *events) { *events = &event_set; return 0; }
int nvmlEventSetFree(Handle events) { return events == &event_set ? 0 : 2; }
int nvmlDeviceRegisterEvents(Handle d, ull asked, Handle events) {
    registered = d, kinds = asked;
    return events == &event_set ? 0 : 2;
}
int nvmlEventSetWait_v2(Handle events, struct event *found, uint milliseconds) {
    *found = (struct event){registered, kinds, milliseconds, ~0u, ~0u};
    return events == &event_set ? 0 : 2;
}
