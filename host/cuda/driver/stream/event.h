/* Marks in the order of a device's queued work (tensor/device.h). */
#pragma once

#include "cuda/driver/api/device.h"

extern const struct ah_device_event_functions ah_cuda_event_functions;
