/* The plugin of device "old": built for an interface that no program has, so it must be refused before it is used. */
#include "tensor/device.h"

extern const struct ah_device_type ah_device_plugin;
const struct ah_device_type ah_device_plugin = {.abi = 0, .name = "old"};
