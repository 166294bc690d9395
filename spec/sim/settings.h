/* The settings of $ACCELHOST_SIM_*, read when the driver is initialised. */
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim
{
struct Settings {
    int devices = 2;                  /* of ACCELHOST_SIM_DEVICES those that CUDA_VISIBLE_DEVICES names */
    int number[16] = {0};             /* of each: its number among all */
    int driver = 13000;               /* ACCELHOST_SIM_DRIVER: the version of CUDA that the driver is for */
    size_t memory = (size_t)1 << 30;  /* ACCELHOST_SIM_MEMORY, of each: 512MiB, 2GiB, 1000000 */
    uint64_t seed = 0;                /* ACCELHOST_SIM_SEED; of the clock when it is not set */
    bool delay = true;                /* ACCELHOST_SIM_DELAY */
    bool twice = false;               /* ACCELHOST_SIM_TWICE: run each kernel in two opposite orders and compare */
    bool tf32 = false;                /* ACCELHOST_SIM_TF32: engines of tensor cores round float32 as they do */
    bool slow_product = false;        /* ACCELHOST_SIM_SLOW_PRODUCT: cuBLASLt's first algorithm is 5 ms slower */
    bool slow_double = false;         /* ACCELHOST_SIM_SLOW_DOUBLE: the rate of doubles is a consumer card's */
    int capability = 90;              /* ACCELHOST_SIM_CAPABILITY */
    bool slices = false;              /* ACCELHOST_SIM_SLICES: all devices are slices of one card, as of MIG */
    bool leaks = false;               /* ACCELHOST_SIM_LEAKS: report memory at the end that was never freed */
};
extern Settings settings;

/* Also resets the counts of injected failures. */
void settings_read();

/* Calls that can fail on request: ACCELHOST_SIM_FAIL="alloc:7,launch:3+". */
enum Fault {
    FAULT_ALLOC, FAULT_PINNED, FAULT_LAUNCH, FAULT_COPY, FAULT_LOST, FAULT_NCCL, FAULT_DNN, FAULT_BLAS, FAULT_WAIT,
    FAULT_EARLY, FAULT_LOAD, FAULT_ECC, FAULT_MAP, FAULT_CONNECT, FAULT_INIT, FAULT_SOLVER,
    FAULTS
};

/* One more call of this kind: is it the one that is to fail? */
bool fault_now(Fault fault);
} // namespace sim
