/* The fake library: its beginning and end, and queries of one device at a time. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCK_SM = 1, UNCORRECTED = 1, VOLATILE = 0 };

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { u64 time; nvmlValue_t value; } nvmlSample_t;
typedef struct { char bus_id_legacy[16]; unsigned domain, bus, device, ids, subsystem_ids; char bus_id[32]; } nvmlPciInfo_t;

nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return begin(__func__); }
nvmlReturn_t nvmlInit_v2(void) { return begin(__func__); }
nvmlReturn_t nvmlShutdown(void) { return begin(__func__); }
const char *nvmlErrorString(nvmlReturn_t code) { return code == LOST ? "GPU is lost" : "scripted error"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size) {
    char value[LINE];
    nvmlReturn_t code = begin(__func__);
    if (code) return code;
    if (!lookup("driver", value)) return NOT_SUPPORTED;
    snprintf(out, size, "%s", value);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    char value[LINE];
    nvmlReturn_t code = begin(__func__);
    if (!code) *count = lookup("devices", value) ? (unsigned)atoi(value) : 0;
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    *out = gpu_at(index);
    return check(*out, __func__);
}

/* It blocks for 20 ms: library.py says why it is never called. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned *out) {
    (void)device, (void)counter, (void)out;
    abort();
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned size) { return text(device, __func__, "uuid", out, size); }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned size) { return text(device, __func__, "name", out, size); }

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
    memset(out, 0, sizeof *out);
    return text(device, __func__, "bus_id", out->bus_id, sizeof out->bus_id);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    char value[LINE];
    nvmlReturn_t code = check(device, __func__);
    if (code) return code;
    return lookup_of(device, "capability", value) && sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    out->memory = 0;
    return device->mig < 0 ? small_number(device, __func__, "util", &out->gpu) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, int type, u64 last_seen, int *value_type, unsigned *count, nvmlSample_t *out) {
    char value[LINE];
    unsigned found = 0;
    u64 time;
    unsigned percent;
    nvmlReturn_t code = check(device, __func__);
    (void)type;
    if (code) return code;
    if (!lookup_of(device, "samples", value)) return NOT_SUPPORTED;
    for (char *next = strtok(value, " "); next; next = strtok(NULL, " ")) {
        if (sscanf(next, "%llu:%u", &time, &percent) != 2 || time <= last_seen) continue;
        if (out && found >= *count) break;
        if (out) { out[found].time = time; out[found].value.ull = 0; out[found].value.ui = percent; }
        found++;
    }
    *value_type = 1; /* unsigned int */
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

static nvmlReturn_t memory(nvmlDevice_t device, const char *function, u64 *total, u64 *used, u64 *reserved) {
    double of_driver = 0;
    nvmlReturn_t code = number(device, function, "memory_total_mib", total);
    if (!code) code = number(device, function, "memory_used_mib", used);
    if (code) return code;
    number_of(device, "memory_reserved_mib", &of_driver);
    *total *= MIB, *used *= MIB, *reserved = (u64)of_driver * MIB;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    u64 reserved = 0;
    nvmlReturn_t code = memory(device, __func__, &out->total, &out->used, &reserved);
    out->used += reserved; /* version 1 counts the driver's own as used */
    out->free = out->total - out->used;
    return code;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "power_mw", out); }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "power_limit_mw", out); }

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "power_limit_default_mw", out); }

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *out) {
    return sensor ? INVALID_ARGUMENT : small_number(device, __func__, "temperature", out);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *out) {
    return type == CLOCK_SM ? small_number(device, __func__, "sm_clock", out) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *out) {
    return type == CLOCK_SM ? small_number(device, __func__, "sm_clock_max", out) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "pcie_generation", out); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "pcie_generation_max", out); }
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "pcie_width", out); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "pcie_width_max", out); }

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, unsigned *is_enabled) { return small_number(device, __func__, "c2c", is_enabled); }

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *out) { return small_number(device, __func__, "pcie_replays", out); }

/* The key has four numbers: rows remapped for corrected and for uncorrected errors, whether more wait, whether it failed. */
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    char value[LINE];
    nvmlReturn_t code = check(device, __func__);
    if (code) return code;
    if (!lookup_of(device, "remapped_rows", value)) return NOT_SUPPORTED;
    return sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? SUCCESS : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter, u64 *out) {
    return kind == UNCORRECTED && counter == VOLATILE ? number(device, __func__, "ecc", out) : INVALID_ARGUMENT;
}

/* The name that drivers before 535 know; later ones, too. */
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, u64 *out) { return number(device, __func__, "event_reasons", out); }

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, u64 *out) { return number(device, __func__, "event_reasons", out); }

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    nvmlReturn_t code = out->version == (sizeof *out | 2u << 24) ? SUCCESS : ARGUMENT_VERSION_MISMATCH;
    if (!code) code = memory(device, __func__, &out->total, &out->used, &out->reserved);
    out->free = out->total - out->used - out->reserved;
    return code;
}
#endif
