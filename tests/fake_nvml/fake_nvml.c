/* A libnvidia-ml.so.1 without hardware: answers from a scenario file, so that the real pynvml runs in tests.
 *
 * FAKE_NVML_SCENARIO names the file. It is read again at every call: a test changes it to let things happen.
 * Lines are "KEY VALUE...", "#" begins a comment, the last line of a key counts. Keys:
 *
 *   devices N                     number of GPUs (0..16)
 *   error.FUNCTION CODE           this call fails, for every GPU: error.nvmlInitWithFlags 18
 *   I.error.FUNCTION CODE         this call fails for GPU I
 *   I.error CODE                  every call fails for GPU I: 15 is a lost GPU
 *   I.name TEXT, I.uuid TEXT
 *   I.util A B C ...              utilisation in %, one a call, the last one stays
 *   I.samples T:V T:V ...         the driver's buffer of utilisation: time in us, value in %
 *   I.memory_total_mib N, I.memory_used_mib N, I.memory_reserved_mib N
 *   I.power_mw N, I.power_limit_mw N, I.temperature N, I.sm_clock N, I.sm_clock_max N
 *   I.event_reasons BITS
 *   I.pids A B ...
 *
 * A key that is not there: the call is not supported (3).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { DEVICES = 16, LINE = 4096, CLOCK_SM = 1, MIB = 1024 * 1024 };

typedef unsigned long long u64;
typedef int nvmlReturn_t;
typedef struct device { unsigned index, util_calls; } *nvmlDevice_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef union { double d; unsigned ui; unsigned long ul; u64 ull; long long sll; int si; unsigned short us; } nvmlValue_t;
typedef struct { u64 time; nvmlValue_t value; } nvmlSample_t;
typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;

static struct device gpus[DEVICES];

/* ---- the scenario */

/* The value of a key, at most LINE bytes; 0 when it is not there. */
static int lookup(const char *key, char *value) {
    char line[LINE];
    size_t length = strlen(key);
    const char *path = getenv("FAKE_NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "#\n")] = 0;
        if (!strncmp(line, key, length) && (line[length] == ' ' || !line[length])) {
            strcpy(value, line + length + (line[length] == ' '));
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static int lookup_of(nvmlDevice_t gpu, const char *key, char *value) {
    char full[256];
    snprintf(full, sizeof full, "%u.%s", gpu->index, key);
    return lookup(full, value);
}

static nvmlReturn_t scripted_error(const char *function) {
    char key[256], value[LINE];
    snprintf(key, sizeof key, "error.%s", function);
    return lookup(key, value) ? atoi(value) : SUCCESS;
}

/* What a call on this GPU is to return before it does anything. */
static nvmlReturn_t check(nvmlDevice_t gpu, const char *function) {
    char key[256], value[LINE];
    if (gpu < gpus || gpu >= gpus + DEVICES) return INVALID_ARGUMENT;
    if (lookup_of(gpu, "error", value)) return atoi(value);
    snprintf(key, sizeof key, "error.%s", function);
    if (lookup_of(gpu, key, value)) return atoi(value);
    return scripted_error(function);
}

static nvmlReturn_t number(nvmlDevice_t gpu, const char *function, const char *key, u64 *out) {
    char value[LINE];
    nvmlReturn_t code = check(gpu, function);
    if (code) return code;
    if (!lookup_of(gpu, key, value)) return NOT_SUPPORTED;
    *out = strtoull(value, NULL, 0);
    return SUCCESS;
}

static nvmlReturn_t small_number(nvmlDevice_t gpu, const char *function, const char *key, unsigned *out) {
    u64 value = 0;
    nvmlReturn_t code = number(gpu, function, key, &value);
    if (!code) *out = (unsigned)value;
    return code;
}

static nvmlReturn_t text(nvmlDevice_t gpu, const char *function, const char *key, char *out, unsigned size) {
    char value[LINE];
    nvmlReturn_t code = check(gpu, function);
    if (code) return code;
    if (!lookup_of(gpu, key, value)) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* ---- the library */

nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return scripted_error(__func__); }
nvmlReturn_t nvmlInit_v2(void) { return scripted_error(__func__); }
nvmlReturn_t nvmlShutdown(void) { return scripted_error(__func__); }
const char *nvmlErrorString(nvmlReturn_t code) { return code == LOST ? "GPU is lost" : "scripted error"; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    char value[LINE];
    nvmlReturn_t code = scripted_error(__func__);
    if (!code) *count = lookup("devices", value) ? (unsigned)atoi(value) : 0;
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    gpus[index].index = index;
    *out = &gpus[index];
    return check(*out, __func__);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char *out, unsigned size) { return text(gpu, __func__, "uuid", out, size); }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char *out, unsigned size) { return text(gpu, __func__, "name", out, size); }

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *out) {
    char value[LINE], *next;
    nvmlReturn_t code = check(gpu, __func__);
    if (code) return code;
    if (!lookup_of(gpu, "util", value)) return NOT_SUPPORTED;
    next = strtok(value, " ");
    for (unsigned call = 0; next && call <= gpu->util_calls; call++, next = strtok(NULL, " ")) out->gpu = (unsigned)atoi(next);
    out->memory = 0;
    gpu->util_calls++;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t gpu, int type, u64 last_seen, int *value_type, unsigned *count, nvmlSample_t *out) {
    char value[LINE];
    unsigned found = 0;
    u64 time;
    unsigned percent;
    nvmlReturn_t code = check(gpu, __func__);
    (void)type;
    if (code) return code;
    if (!lookup_of(gpu, "samples", value)) return NOT_SUPPORTED;
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

static nvmlReturn_t memory(nvmlDevice_t gpu, const char *function, u64 *total, u64 *used, u64 *reserved) {
    nvmlReturn_t code = number(gpu, function, "memory_total_mib", total);
    if (!code) code = number(gpu, function, "memory_used_mib", used);
    if (code) return code;
    *reserved = 0;
    number(gpu, function, "memory_reserved_mib", reserved);
    *total *= MIB, *used *= MIB, *reserved *= MIB;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *out) {
    u64 reserved = 0;
    nvmlReturn_t code = memory(gpu, __func__, &out->total, &out->used, &reserved);
    out->used += reserved; /* version 1 counts the driver's own as used */
    out->free = out->total - out->used;
    return code;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *out) {
    nvmlReturn_t code = memory(gpu, __func__, &out->total, &out->used, &out->reserved);
    out->free = out->total - out->used - out->reserved;
    return code;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned *out) { return small_number(gpu, __func__, "power_mw", out); }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t gpu, unsigned *out) { return small_number(gpu, __func__, "power_limit_mw", out); }

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, int sensor, unsigned *out) {
    return sensor ? INVALID_ARGUMENT : small_number(gpu, __func__, "temperature", out);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, int type, unsigned *out) {
    return type == CLOCK_SM ? small_number(gpu, __func__, "sm_clock", out) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t gpu, int type, unsigned *out) {
    return type == CLOCK_SM ? small_number(gpu, __func__, "sm_clock_max", out) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t gpu, u64 *out) { return number(gpu, __func__, "event_reasons", out); }

/* The name that drivers before 535 know. */
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t gpu, u64 *out) { return number(gpu, __func__, "event_reasons", out); }

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *out) {
    char value[LINE];
    unsigned found = 0;
    nvmlReturn_t code = check(gpu, __func__);
    if (code) return code;
    if (!lookup_of(gpu, "pids", value)) return NOT_SUPPORTED;
    for (char *next = strtok(value, " "); next; next = strtok(NULL, " "), found++)
        if (out && found < *count) {
            memset(&out[found], 0, sizeof out[found]);
            out[found].pid = (unsigned)atoi(next);
        }
    code = !out && found ? INSUFFICIENT_SIZE : SUCCESS;
    *count = found;
    return code;
}
