/* The fake library: who computes on a device, its MIG instances, its events. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { XID = 8, MIG_ON = 1 };
static const u64 NOT_AVAILABLE = ~0ULL;

typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } nvmlProcessUtilizationSample_t;
typedef struct { nvmlDevice_t device; u64 type, data; unsigned gpu_instance, compute_instance; } nvmlEventData_t;
typedef struct events { nvmlDevice_t devices[DEVICES]; unsigned count; } *nvmlEventSet_t;

/* ---- processes */

static nvmlReturn_t processes(nvmlDevice_t device, const char *function, unsigned *count, nvmlProcessInfo_t *out) {
    char value[LINE];
    unsigned found = 0, pid;
    u64 mib;
    nvmlReturn_t code = check(device, function);
    if (code) return code;
    if (!lookup_of(device, "pids", value)) return NOT_SUPPORTED;
    for (char *next = strtok(value, " "); next; next = strtok(NULL, " "), found++)
        if (out && found < *count) {
            int parts = sscanf(next, "%u:%llu", &pid, &mib);
            memset(&out[found], 0, sizeof out[found]);
            out[found].pid = pid;
            out[found].memory = parts == 2 ? mib * MIB : NOT_AVAILABLE;
        }
    code = !out && found ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return code;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out) { return processes(device, __func__, count, out); }
#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out) { return processes(device, __func__, count, out); }
#endif

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned *count, u64 last_seen) {
    char value[LINE];
    unsigned found = 0, pid, sm;
    u64 time;
    nvmlReturn_t code = check(device, __func__);
    if (code) return code;
    if (device->mig >= 0 || !lookup_of(device, "process_samples", value)) return NOT_SUPPORTED;
    for (char *next = strtok(value, " "); next; next = strtok(NULL, " ")) {
        if (sscanf(next, "%u:%llu:%u", &pid, &time, &sm) != 3 || time <= last_seen) continue;
        if (out && found < *count) {
            memset(&out[found], 0, sizeof out[found]);
            out[found].pid = pid, out[found].time = time, out[found].sm = sm;
        }
        found++;
    }
    *count = found;
    return !found ? NOT_FOUND : out ? SUCCESS : INSUFFICIENT_SIZE;
}

/* ---- MIG */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    nvmlReturn_t code = small_number(device, __func__, "mig", current);
    if (code) return code;
    *current = *pending = *current ? MIG_ON : 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    *count = INSTANCES;
    return check(device, __func__);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, unsigned place, nvmlDevice_t *out) {
    char value[LINE];
    nvmlReturn_t code = check(gpu, __func__);
    if (code) return code;
    if (!lookup_of(gpu, "mig", value) || place >= (unsigned)atoi(value)) return NOT_FOUND;
    *out = instance_at(gpu, place);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    *id = (unsigned)device->mig + 1;
    return device->mig < 0 ? NOT_SUPPORTED : check(device, __func__);
}

/* ---- events */

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *types) {
    char value[LINE];
    *types = lookup_of(device, "xids", value) ? XID : 0;
    return check(device, __func__);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out) {
    *out = calloc(1, sizeof **out);
    return begin(__func__);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return begin(__func__);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set) {
    nvmlReturn_t code = check(device, __func__);
    if (code) return code;
    if (types != XID || set->count >= DEVICES) return INVALID_ARGUMENT;
    set->devices[set->count++] = device;
    return SUCCESS;
}

static int next_xid(nvmlDevice_t device, u64 *out) {
    char value[LINE], *next;
    unsigned place = 0;
    if (!lookup_of(device, "xids", value)) return 0;
    for (next = strtok(value, " "); next && place < device->xids_told; next = strtok(NULL, " ")) place++;
    if (!next) return 0;
    device->xids_told++;
    *out = strtoull(next, NULL, 0);
    return 1;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout_ms) {
    nvmlReturn_t code = begin(__func__);
    if (code) return code;
    if (timeout_ms) return INVALID_ARGUMENT; /* a monitor has no time to wait */
    memset(out, 0, sizeof *out);
    for (unsigned place = 0; place < set->count; place++)
        if (next_xid(set->devices[place], &out->data)) {
            out->device = set->devices[place];
            out->type = XID;
            return SUCCESS;
        }
    return TIMEOUT;
}
