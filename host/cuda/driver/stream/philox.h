/* The generator of a CUDA device: Philox4x32-10, with PyTorch's streams.
 *
 * A kernel that draws reserves its place in the stream before it is launched, has it among its arguments (struct
 * ah_philox_place) and reads it with kernels/lib/philox.cuh. It reserves the largest number of draws of any thread; the
 * next kernel continues after them.
 *
 * In a step that is captured as a graph the place is passed through device memory, since each replay is to draw other
 * numbers:
 *     ah_cuda_philox_capture(cuda, at);            before the capture begins; `at` is 16 bytes of device memory that
 *                                                  live as long as the graph
 *     used = ah_cuda_philox_captured(cuda);        when it has ended, or failed
 *     ah_cuda_philox_replay(cuda, at, used);       before each launch of the graph on the compute stream: writes there
 *                                                  the generator's position, and advances it
 * so that replays draw the numbers of the step without a graph. Between the first two the generator cannot be set, and
 * its state is the one from before. Lua thread only. */
#pragma once

#include "cuda/driver/api/device.h"
#include "cuda/kernels/lib/philox.h"

/* The place of a kernel whose threads draw at most `numbers` each; a multiple of 4 is used. */
struct ah_philox_place ah_cuda_philox_take(struct ah_cuda_device *cuda, uint64_t numbers);

/* From now on places are passed through `at`. */
void ah_cuda_philox_capture(struct ah_cuda_device *cuda, uint64_t at);
/* By value again; returns how far the step has drawn. */
uint64_t ah_cuda_philox_captured(struct ah_cuda_device *cuda);
/* Let the next launch of a graph draw from here on. */
int ah_cuda_philox_replay(struct ah_cuda_device *cuda, uint64_t at, uint64_t used);

/* The device type's seed, get_state and set_state. */
void ah_cuda_philox_seed(struct ah_device *device, uint64_t seed);
int ah_cuda_philox_get_state(struct ah_device *device, uint8_t *state);
int ah_cuda_philox_set_state(struct ah_device *device, const uint8_t *state);
