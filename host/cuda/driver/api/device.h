/* The state of an open CUDA device, and the functions of the plugin's files on it.
 *
 * All work that the host queues on a device runs on its compute stream, in the order of the calls. The copy stream is
 * for copies that may overtake kernels; its users record their use of memory (ah_cuda_memory_used_on). */
#pragma once

#include "cuda/driver/api/driver.h"
#include "tensor/device.h"

enum { AH_CUDA_DEVICES = 16 };

struct ah_cuda_memory;
struct ah_cuda_pinned;
struct ah_cuda_prefetch;
struct ah_cuda_faults;
struct ah_cuda_capture;
struct ah_cuda_times;

/* Of philox.h. */
struct ah_cuda_generator {
    uint64_t seed, offset;
    uint64_t through, within; /* while a step is captured: the address it reads, and how far it has drawn */
    bool of_cpu; /* random numbers are drawn on the CPU, from its generator ($ACCELHOST_CUDA_RANDOM=cpu) */
};

struct ah_cuda_device {
    struct ah_device *device;
    int ordinal;
    CUdevice handle;
    CUcontext context;
    CUstream compute, copy;
    CUstream fetch; /* for copies to the host that run in addition to `copy`'s; NULL before the first */
    int multiprocessors;
    int resident_blocks; /* blocks of 256 threads that it runs at once */
    int capability; /* 90 is 9.0 */
    bool slow_double; /* it computes doubles at less than half the rate of floats */
    uint32_t peers; /* by ordinal: direct access to their memory was asked for (copy.c) */
    int shared_limit; /* bytes of shared memory that a block may ask for */
    struct ah_cuda_memory *memory;
    struct ah_cuda_pinned *pinned;
    struct ah_cuda_prefetch *prefetch;
    struct ah_cuda_faults *faults; /* fault.h; NULL before the first check */
    struct ah_cuda_times *times;   /* times.h; NULL before the first start */
    struct ah_cuda_generator generator;
    struct ah_cuda_capture *capturing, *revised; /* capture.h; NULL: no graph is */
    struct ah_graph *collecting;          /* captured graphs with collectives */
    struct ah_graph *closed;              /* graphs whose parts at the driver are still to be destroyed */
    bool waits; /* each launch is waited for, so that an error names its kernel (CUDA_LAUNCH_BLOCKING) */
};

static inline struct ah_cuda_device *ah_cuda_state(const struct ah_device *device)
{
    return device->state;
}

/* Make its context this thread's; every function that calls the driver begins with it. AH_ESTATE with the first
 * failure's text once a context is lost. */
int ah_cuda_enter(struct ah_cuda_device *cuda);
/* The same, also for a lost context: for functions that close, free and abort. */
int ah_cuda_make_current(struct ah_cuda_device *cuda);
/* Leave the device: this thread's calls are for none. */
void ah_cuda_leave(void);

/* Between the two, calls of the driver that have nothing to do with a stream (loading a module, asking for memory) are
 * allowed while this thread captures a graph. */
CUstreamCaptureMode ah_cuda_relax(void);
void ah_cuda_tighten(CUstreamCaptureMode before);

/* The kernel column and the optimizers. */
extern const ah_kernel ah_cuda_kernels[];
extern const struct ah_optim_kernels ah_cuda_optim;
