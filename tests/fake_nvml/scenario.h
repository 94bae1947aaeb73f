/* What the parts of the fake libnvidia-ml.so.1 share. Types and codes are those of nvml.h. */
#ifndef SCENARIO_H
#define SCENARIO_H

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25
};
enum { DEVICES = 16, INSTANCES = 8, LINE = 4096, MIB = 1024 * 1024 };

typedef unsigned long long u64;
typedef int nvmlReturn_t;
/* A GPU, or (mig >= 0) one MIG instance of it. */
typedef struct device { unsigned index; int mig; unsigned xids_told; } *nvmlDevice_t;
typedef union { double d; unsigned ui; unsigned long ul; u64 ull; long long sll; int si; unsigned short us; } nvmlValue_t;

nvmlDevice_t gpu_at(unsigned index);
nvmlDevice_t instance_at(nvmlDevice_t gpu, unsigned place);

/* The text of a key of the machine, or of a device; 0 when it is not there. */
int lookup(const char *key, char *value);
int lookup_of(nvmlDevice_t device, const char *key, char *value);
/* The number of a key of a device; 0 when it is not there. Advances a sequence. */
int number_of(nvmlDevice_t device, const char *key, double *out);

/* What a call is to return before it does anything, after the delay it is to have; notes that it was made. */
nvmlReturn_t begin(const char *function);
nvmlReturn_t check(nvmlDevice_t device, const char *function);

/* A whole call: a number, or a text. */
nvmlReturn_t number(nvmlDevice_t device, const char *function, const char *key, u64 *out);
nvmlReturn_t small_number(nvmlDevice_t device, const char *function, const char *key, unsigned *out);
nvmlReturn_t text(nvmlDevice_t device, const char *function, const char *key, char *out, unsigned size);

#endif
