/* The fake library: fields that are read many at once, and GPM. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_UINT = 1, VALUE_ULL = 3, NVLINK_TX = 138, NVLINK_RX = 139, GPM_VERSION = 1 };
static const unsigned ALL_LINKS = 0xFFFFFFFF;

typedef struct {
    unsigned id, scope;
    long long timestamp, latency_us;
    int value_type;
    nvmlReturn_t result;
    nvmlValue_t value;
} nvmlFieldValue_t;

static void field(nvmlDevice_t device, nvmlFieldValue_t *out) {
    char key[64], value[LINE];
    double number = 0;
    int wide;
    snprintf(key, sizeof key, "field.%u.error", out->id);
    out->result = lookup_of(device, key, value) ? atoi(value) : SUCCESS;
    if ((out->id == NVLINK_TX || out->id == NVLINK_RX) && out->scope != ALL_LINKS) out->result = INVALID_ARGUMENT;
    if (out->result) return;
    snprintf(key, sizeof key, "field.%u.type", out->id);
    wide = !lookup_of(device, key, value) || strcmp(value, "uint");
    snprintf(key, sizeof key, "field.%u", out->id);
    if (!number_of(device, key, &number)) {
        out->result = NOT_SUPPORTED;
        return;
    }
    memset(&out->value, 0xA5, sizeof out->value); /* what is beyond a small value is not zero */
    out->value_type = wide ? VALUE_ULL : VALUE_UINT;
    if (wide) out->value.ull = (u64)number;
    else out->value.ui = (unsigned)(u64)number;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    nvmlReturn_t code = check(device, __func__);
    if (code) return code;
    if (device->mig >= 0) return NOT_SUPPORTED;
    for (int place = 0; place < count; place++) field(device, &values[place]);
    return SUCCESS;
}

#ifndef OLD_DRIVER

typedef struct { unsigned version, supported; } nvmlGpmSupport_t;
typedef struct sample { unsigned number; struct device of; } *nvmlGpmSample_t;
typedef struct {
    unsigned id;
    nvmlReturn_t result;
    double value;
    const char *short_name, *long_name, *unit;
} nvmlGpmMetric_t;
typedef struct {
    unsigned version, count;
    nvmlGpmSample_t older, newer;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;

static unsigned samples_taken;

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    double supported = 0;
    nvmlReturn_t code = check(device, __func__);
    if (code) return code;
    if (out->version != GPM_VERSION) return ARGUMENT_VERSION_MISMATCH;
    number_of(device, "gpm", &supported);
    out->supported = supported > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    *out = calloc(1, sizeof **out);
    return begin(__func__);
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    free(sample);
    return begin(__func__);
}

static nvmlReturn_t take(nvmlDevice_t of, const char *function, nvmlGpmSample_t sample) {
    nvmlReturn_t code = check(of, function);
    if (code) return code;
    sample->number = ++samples_taken;
    sample->of = *of;
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) { return take(device, __func__, sample); }

/* The number of a GPU instance is one more than its place in the scenario. */
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t gpu, unsigned instance, nvmlGpmSample_t sample) {
    if (gpu->mig >= 0 || instance < 1 || instance > INSTANCES) return INVALID_ARGUMENT;
    return take(instance_at(gpu, instance - 1), __func__, sample);
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *out) {
    nvmlReturn_t code = begin(__func__);
    if (code) return code;
    if (out->version != GPM_VERSION) return ARGUMENT_VERSION_MISMATCH;
    if (!out->older->number || out->older->number >= out->newer->number) return INVALID_ARGUMENT;
    for (unsigned place = 0; place < out->count; place++) {
        nvmlGpmMetric_t *metric = &out->metrics[place];
        char key[64];
        snprintf(key, sizeof key, "gpm.%u", metric->id);
        metric->result = number_of(&out->newer->of, key, &metric->value) ? SUCCESS : NOT_SUPPORTED;
    }
    return SUCCESS;
}

#endif
