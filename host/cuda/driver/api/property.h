/* The properties of a device (tensor/device.h): names and meanings as in PyTorch's get_device_properties. */
#pragma once

#include "cuda/driver/api/device.h"

/* The i-th fact about a device; false past the last one. */
bool ah_cuda_property(int index, int i, struct ah_device_property *out);
