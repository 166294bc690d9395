/* Marks in the order of a device's queued work (tensor/device.h). */
#ifndef AH_CUDA_EVENT_H
#define AH_CUDA_EVENT_H

#include "cuda/driver/api/device.h"

extern const struct ah_device_event_functions ah_cuda_event_functions;

#endif
