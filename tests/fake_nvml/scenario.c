/* A libnvidia-ml.so.1 without hardware: answers from a scenario file, so that the real pynvml runs in tests.
 *
 * FAKE_NVML_SCENARIO names the file. It is read again at every call: a test changes it to let things happen.
 * Lines are "KEY VALUE...", "#" begins a comment, the last line of a key counts. A key of GPU 0 begins with "0.", one of
 * its second MIG instance with "0.mig.1.". Where a number stands, there may also stand
 *
 *   A B C ...             one a call, the last one stays
 *   wave LOW HIGH SECONDS goes up and down in so many seconds
 *   ramp START PER_SECOND grows from when the library was loaded
 *
 * Keys of the machine:
 *   devices N             number of GPUs (0..16)
 *   driver TEXT           its version
 *   calls PATH            the file that the name of each function called is appended to
 *   error.FUNCTION CODE   this call fails, for every device: error.nvmlInitWithFlags 18
 *   delay.FUNCTION MS     this call takes so long, or until the key is gone
 *
 * Keys of a device:
 *   error.FUNCTION CODE, error CODE           this call, every call fails for it: 15 is a lost GPU
 *   name TEXT, uuid TEXT, capability MAJOR.MINOR, bus_id DOMAIN:BUS:DEVICE.FUNCTION
 *   util N                                    in %
 *   samples T:V T:V ...                       the driver's buffer of utilisation: time in us, value in %
 *   memory_total_mib N, memory_used_mib N, memory_reserved_mib N
 *   power_mw N, power_limit_mw N, power_limit_default_mw N, temperature N, sm_clock N, sm_clock_max N, ecc N
 *   pcie_generation N, pcie_generation_max N, pcie_width N, pcie_width_max N, pcie_replays N, c2c N
 *   remapped_rows CORRECTED UNCORRECTED PENDING FAILED
 *   event_reasons BITS
 *   pids A B:MIB ...                          who computes, with memory or without
 *   process_samples PID:T:SM ...              the driver's buffer of process utilisation: time in us, in %
 *   field.ID N, field.ID.error CODE           of nvmlDeviceGetFieldValues; field.ID.type uint: a 32-bit counter
 *   gpm 1, gpm.ID N                           GPM is supported, and what a metric is between any two samples
 *   xids A B ...                              events, each reported once
 *   mig N                                     cut into so many instances (0: MIG is there and off)
 *
 * A key that is not there: the call is not supported (3). Built with -DOLD_DRIVER the library has only the functions of
 * a driver before 500.
 */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 512 };

static struct device gpus[DEVICES], instances[DEVICES][INSTANCES];
static struct { char key[256]; unsigned calls; } sequences[KEYS];
static struct timespec loaded;

__attribute__((constructor)) static void load(void) { clock_gettime(CLOCK_MONOTONIC, &loaded); }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - loaded.tv_sec) + (double)(now.tv_nsec - loaded.tv_nsec) / 1e9;
}

nvmlDevice_t gpu_at(unsigned index) {
    gpus[index].index = index;
    gpus[index].mig = -1;
    return &gpus[index];
}

nvmlDevice_t instance_at(nvmlDevice_t gpu, unsigned place) {
    instances[gpu->index][place].index = gpu->index;
    instances[gpu->index][place].mig = (int)place;
    return &instances[gpu->index][place];
}

int lookup(const char *key, char *value) {
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

static void full_key(nvmlDevice_t device, const char *key, char *full, size_t size) {
    if (device->mig < 0) snprintf(full, size, "%u.%s", device->index, key);
    else snprintf(full, size, "%u.mig.%d.%s", device->index, device->mig, key);
}

int lookup_of(nvmlDevice_t device, const char *key, char *value) {
    char full[256];
    full_key(device, key, full, sizeof full);
    return lookup(full, value);
}

/* How often the number of this key was queried before. */
static unsigned calls_before(const char *key) {
    unsigned place = 0;
    while (place < KEYS - 1 && sequences[place].key[0] && strcmp(sequences[place].key, key)) place++;
    strncpy(sequences[place].key, key, sizeof sequences[place].key - 1);
    return sequences[place].calls++;
}

static double triangle(double low, double high, double period) {
    double turns = seconds() / period;
    double part = turns - (double)(u64)turns;
    return low + (high - low) * (part < 0.5 ? 2 * part : 2 - 2 * part);
}

int number_of(nvmlDevice_t device, const char *key, double *out) {
    char full[256], value[LINE], *next, *rest = NULL;
    double a, b, c;
    unsigned calls;
    full_key(device, key, full, sizeof full);
    if (!lookup(full, value)) return 0;
    if (sscanf(value, "wave %lf %lf %lf", &a, &b, &c) == 3) return *out = triangle(a, b, c), 1;
    if (sscanf(value, "ramp %lf %lf", &a, &b) == 2) return *out = a + b * seconds(), 1;
    calls = calls_before(full);
    next = strtok_r(value, " ", &rest);
    if (!next) return 0;
    for (; next && calls; calls--) {
        char *after = strtok_r(NULL, " ", &rest);
        if (!after) break;
        next = after;
    }
    *out = strncmp(next, "0x", 2) ? strtod(next, NULL) : (double)strtoull(next, NULL, 16);
    return 1;
}

nvmlReturn_t begin(const char *function) {
    char key[256], value[LINE];
    if (lookup("calls", value)) {
        FILE *file = fopen(value, "a");
        if (file) fprintf(file, "%s\n", function), fclose(file);
    }
    snprintf(key, sizeof key, "delay.%s", function);
    for (int ms = 0; lookup(key, value) && ms < atoi(value); ms += 10) {
        struct timespec delay = {0, 10 * 1000000L};
        nanosleep(&delay, NULL);
    }
    snprintf(key, sizeof key, "error.%s", function);
    return lookup(key, value) ? atoi(value) : SUCCESS;
}

nvmlReturn_t check(nvmlDevice_t device, const char *function) {
    char key[256], value[LINE];
    nvmlReturn_t code = begin(function);
    if (code) return code;
    if (lookup_of(device, "error", value)) return atoi(value);
    snprintf(key, sizeof key, "error.%s", function);
    return lookup_of(device, key, value) ? atoi(value) : SUCCESS;
}

nvmlReturn_t number(nvmlDevice_t device, const char *function, const char *key, u64 *out) {
    double value;
    nvmlReturn_t code = check(device, function);
    if (code) return code;
    if (!number_of(device, key, &value)) return NOT_SUPPORTED;
    *out = (u64)value;
    return SUCCESS;
}

nvmlReturn_t small_number(nvmlDevice_t device, const char *function, const char *key, unsigned *out) {
    u64 value = 0;
    nvmlReturn_t code = number(device, function, key, &value);
    if (!code) *out = (unsigned)value;
    return code;
}

nvmlReturn_t text(nvmlDevice_t device, const char *function, const char *key, char *out, unsigned size) {
    char value[LINE];
    nvmlReturn_t code = check(device, function);
    if (code) return code;
    if (!lookup_of(device, key, value)) return NOT_SUPPORTED;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}
