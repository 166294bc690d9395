/* Asks cuDNN itself whether it accepts attention's graphs, for a described H100 that need not be present: no kernel
 * runs. Prints a line per case: its name, and the number of configurations that the heuristics name.
 * usage: PROGRAM LIBCUDNN */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "cuda/ops/linear/attention_graph.h"

enum { DEVICEPROP_DESCRIPTOR = 38, ATTR_ENGINEHEUR_DEVICEPROP = 204, ATTR_DEVICEPROP_JSON = 2702, TYPE_CHAR = 24 };

/* The fields of a description that cuDNN reads; it is refused if one is missing. */
static const char h100[] =
    "{\"deviceVer\":900,\"multiProcessorCount\":132,\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,"
    "1024,64],\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":52428800,"
    "\"deviceName\":\"NVIDIA H100 80GB HBM3\",\"driverVer\":13000,\"cudaDeviceId\":0,\"totalGlobalMem\":85000000000,"
    "\"smCountOrigin\":0,\"memoryBusWidth\":5120,\"oversizedSharedMemoryPerBlock\":0}"; /* these from 9.28 on */

/* The plugin's functions that dnn_plan.c calls for a device. */
int ah_cudnn_open(const struct ah_cudnn **out)
{
    (void)out;
    return -1;
}

int ah_cuda_enter(struct ah_cuda_device *cuda)
{
    (void)cuda;
    return -1;
}

static int open_library(struct ah_cudnn *dnn, const char *path)
{
    static const struct {
        const char *name;
        size_t place;
    } symbols[] = {
#define CALL(result, field, symbol, parameters) {#symbol, offsetof(struct ah_cudnn, field)},
#include "cuda/vendor/dnn.def"
#undef CALL
    };
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *function = library ? dlsym(library, symbols[i].name) : NULL;
        if (!function)
            return -1;
        memcpy((char *)dnn + symbols[i].place, &function, sizeof function);
    }
    return 0;
}

/* Packed query, key and value (batch, tokens, 3, heads, width), or separate heads after the tokens. */
static struct ah_sdpa describe(int64_t batch, int64_t heads, int64_t groups, int64_t queries, int64_t keys,
                               int64_t width, bool packed)
{
    struct ah_sdpa a = {.batch = batch,
                        .heads = heads,
                        .groups = groups,
                        .queries = queries,
                        .keys = keys,
                        .width = width,
                        .value_width = width,
                        .lse_batch = queries,
                        .lse_head = batch * queries,
                        .dtype = CUDNN_DATA_BFLOAT16};
    for (int i = 0; i < AH_SDPA_ROWS; i++) {
        bool of_keys = i == AH_SDPA_KEY || i == AH_SDPA_VALUE || i == AH_SDPA_GRAD_KEY || i == AH_SDPA_GRAD_VALUE;
        int64_t between = width * (packed && i <= AH_SDPA_VALUE ? 3 * heads : of_keys ? groups : heads);
        a.rows[i] = (struct ah_sdpa_rows){between * (of_keys ? keys : queries), width, between};
    }
    return a;
}

/* The number of configurations for a graph; -1 after a failure. */
static long count_configs(const struct ah_cudnn *dnn, cudnnBackendDescriptor_t properties, const struct ah_sdpa *a)
{
    enum { MOST = 16 };
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    struct ah_sdpa_graph graph = {.count = 0};
    cudnnBackendDescriptor_t heuristic, config[MOST];
    int mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    ah_sdpa_graph_make(&work, NULL, a, &graph);
    ah_dnn_create(&work, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    ah_dnn_set_other(&work, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.itself);
    ah_dnn_set(&work, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    ah_dnn_set_other(&work, heuristic, ATTR_ENGINEHEUR_DEVICEPROP, properties);
    ah_dnn_finish(&work, heuristic);
    for (int i = 0; i < MOST; i++)
        ah_dnn_create(&work, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[i]);
    if (work.status == CUDNN_STATUS_SUCCESS)
        work.status = dnn->attribute_get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST,
                                         &count, config);
    for (int i = 0; i < MOST; i++)
        ah_dnn_destroy(dnn, &config[i]);
    ah_dnn_destroy(dnn, &heuristic);
    ah_sdpa_graph_drop(dnn, &graph);
    if (work.status != CUDNN_STATUS_SUCCESS)
        fprintf(stderr, "%s\n", dnn->error_text(work.status));
    return work.status == CUDNN_STATUS_SUCCESS ? (long)count : -1;
}

int main(int argc, char **argv)
{
    struct ah_cudnn dnn;
    if (argc != 2 || open_library(&dnn, argv[1]) < 0 || dnn.version() < 91300)
        return 77;
    struct ah_dnn_work work = {&dnn, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t properties;
    ah_dnn_create(&work, DEVICEPROP_DESCRIPTOR, &properties);
    ah_dnn_set(&work, properties, ATTR_DEVICEPROP_JSON, TYPE_CHAR, sizeof h100 - 1, h100);
    ah_dnn_finish(&work, properties);
    const struct {
        const char *name;
        struct ah_sdpa sdpa;
    } shapes[] = {
        {"gpt2", describe(16, 12, 12, 1024, 1024, 64, true)}, {"wide", describe(2, 16, 16, 512, 512, 128, false)},
        {"widest", describe(2, 4, 4, 512, 512, 256, false)},  {"grouped", describe(2, 8, 2, 256, 256, 64, false)},
        {"unequal", describe(3, 4, 4, 128, 320, 40, false)},  {"odd", describe(2, 4, 4, 77, 51, 64, false)}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int bits = 0; bits < 6; bits++) {
            struct ah_sdpa a = shapes[i].sdpa;
            a.causal = bits % 2;
            a.backward = bits / 2 > 0;
            a.ordered = bits / 2 == 1;
            a.dtype = i % 2 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
            printf("%s %s%s %ld\n", shapes[i].name, a.causal ? "causal " : "",
                   !a.backward ? "forward"
                   : a.ordered ? "ordered"
                               : "unordered",
                   count_configs(&dnn, properties, &a));
        }
    return 0;
}
