/* A libamd_smi.so without hardware: answers from a scenario file (../fake_nvml/scenario.c), so that the real amdsmi runs.
 *
 * Its GPUs are those of the scenario from number FIRST on: the first one's keys begin with "8.", so that one scenario
 * can hold the GPUs of both vendors. amd_devices N is their number. Keys of a device:
 *
 *   error.FUNCTION CODE, error CODE           this call, every call fails for it
 *   name TEXT, uuid TEXT, bdf BUS             the bus in hexadecimal
 *   memory_total_mib N, memory_used_mib N, power_cap_uw N, ecc N, gfx_clock_max N
 *   pids PID:MIB ...                          who computes
 *   what METRICS lists                        as in amdsmi_gpu_metrics_t
 *
 * A key that is not there: the call is not supported, the metric all ones. types.h and stubs.c are generated from the
 * binding (__init__.py): the structures as it declares them, and every function that it wants to find.
 */
#include "scenario.h"
#include "types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNSUPPORTED = 2, FIRST = 8 };

typedef nvmlDevice_t handle_t;

static int finish(handle_t device, const char *function, int answered) {
    int code = check(device, function);
    return code ? code : answered ? SUCCESS : UNSUPPORTED;
}

static int value_of(handle_t device, const char *key, u64 *out) {
    double value = 0;
    int found = number_of(device, key, &value);
    *out = (u64)value;
    return found;
}

static uint32_t devices(void) {
    char value[LINE];
    return lookup("amd_devices", value) ? (uint32_t)atoi(value) : 0;
}

int amdsmi_init(u64 flags) { (void)flags; return begin(__func__); }
int amdsmi_shut_down(void) { return begin(__func__); }

/* A socket each. */
int amdsmi_get_socket_handles(uint32_t *count, handle_t *out) {
    *count = devices();
    for (uint32_t place = 0; out && place < *count; place++) out[place] = gpu_at(FIRST + place);
    return begin(__func__);
}

int amdsmi_get_processor_handles(handle_t socket, uint32_t *count, handle_t *out) {
    *count = 1;
    if (out) *out = socket;
    return begin(__func__);
}

int amdsmi_get_gpu_enumeration_info(handle_t device, amdsmi_enumeration_info_t *out) {
    char value[LINE] = "";
    int found = lookup_of(device, "uuid", value);
    memset(out, 0, sizeof *out);
    snprintf(out->hip_uuid, sizeof out->hip_uuid, "%s", value);
    return finish(device, __func__, found);
}

int amdsmi_get_gpu_asic_info(handle_t device, amdsmi_asic_info_t *out) {
    char value[LINE] = "";
    int found = lookup_of(device, "name", value);
    memset(out, 0, sizeof *out);
    snprintf(out->market_name, sizeof out->market_name, "%s", value);
    return finish(device, __func__, found);
}

int amdsmi_get_gpu_device_bdf(handle_t device, u64 *out) {
    char value[LINE] = "";
    int found = lookup_of(device, "bdf", value);
    *out = strtoull(value, NULL, 16) << 8; /* 3 bits of function, 5 of device, 8 of bus, 48 of domain */
    return finish(device, __func__, found);
}

int amdsmi_get_clock_info(handle_t device, unsigned type, amdsmi_clk_info_t *out) {
    u64 value;
    int found = value_of(device, "gfx_clock_max", &value);
    memset(out, 0, sizeof *out);
    out->max_clk = (uint32_t)value;
    return finish(device, __func__, found && type == 0);
}

#define METRICS(M) \
    M(average_gfx_activity) M(current_socket_power) M(average_socket_power) M(temperature_edge) M(temperature_hotspot) \
    M(temperature_mem) M(current_gfxclk) M(pcie_link_width) M(pcie_link_speed) M(accumulation_counter) \
    M(prochot_residency_acc) M(ppt_residency_acc) M(socket_thm_residency_acc) M(vr_thm_residency_acc) \
    M(hbm_thm_residency_acc) M(energy_accumulator)

int amdsmi_get_gpu_metrics_info(handle_t device, amdsmi_gpu_metrics_t *out) {
    u64 value;
    int found = 0;
    memset(out, 0xFF, sizeof *out);
#define SET(field) if (value_of(device, #field, &value)) out->field = value, found = 1;
    METRICS(SET)
    if (value_of(device, "current_gfxclks", &value)) out->current_gfxclks[1] = (uint16_t)value, found = 1;
    return finish(device, __func__, found);
}

int amdsmi_get_gpu_vram_usage(handle_t device, amdsmi_vram_usage_t *out) {
    u64 total, used;
    int found = value_of(device, "memory_total_mib", &total) & value_of(device, "memory_used_mib", &used);
    out->vram_total = (uint32_t)total;
    out->vram_used = (uint32_t)used;
    return finish(device, __func__, found);
}

int amdsmi_get_energy_count(handle_t device, u64 *out, float *resolution_uj, u64 *time) {
    *resolution_uj = 15.3f;
    *time = 0;
    if (!value_of(device, "energy_accumulator", out)) *out = ~0ull;
    return finish(device, __func__, 1);
}

int amdsmi_get_power_cap_info(handle_t device, uint32_t sensor, amdsmi_power_cap_info_t *out) {
    u64 value;
    int found = value_of(device, "power_cap_uw", &value);
    memset(out, 0, sizeof *out);
    out->power_cap = value;
    return finish(device, __func__, found && sensor == 0);
}

int amdsmi_get_gpu_total_ecc_count(handle_t device, amdsmi_error_count_t *out) {
    u64 value;
    int found = value_of(device, "ecc", &value);
    memset(out, 0, sizeof *out);
    out->uncorrectable_count = value;
    return finish(device, __func__, found);
}

int amdsmi_get_gpu_process_list(handle_t device, uint32_t *count, amdsmi_proc_info_t *out) {
    char value[LINE] = "", *rest = NULL;
    int found = lookup_of(device, "pids", value);
    uint32_t most = *count;
    *count = 0;
    for (char *next = strtok_r(value, " ", &rest); next && *count < most; next = strtok_r(NULL, " ", &rest)) {
        amdsmi_proc_info_t *process = &out[(*count)++];
        unsigned mib = 0;
        memset(process, 0, sizeof *process);
        sscanf(next, "%u:%u", &process->pid, &mib);
        process->memory_usage.vram_mem = (u64)mib * MIB;
    }
    return finish(device, __func__, found);
}
