/* Device "meta": tensors with shape, dtype and history, and no values.
 *
 * Every op whose result depends on shapes alone runs on it, forward and backward, and needs no time and no memory; an
 * op that needs values (item, saving, a size that depends on them) is an error. Its memory statistics are those of the
 * same program on the CPU, without the workspaces of kernels: `accelhost estimate-memory` reads them. Built in, unlike
 * other devices. */
#pragma once

/* Make it known; further calls do nothing. After ah_cpu_open. */
void ah_meta_open(void);
