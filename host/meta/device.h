/* Device "meta": tensors with shape, dtype and history, and no values.
 *
 * Every op that shapes alone decide runs on it, forward and backward, and takes no time and no memory; what needs
 * values (item, saving, a size that depends on them) is an error. Its memory statistics say what the same program would
 * hold on the CPU, but for the workspaces of kernels: `accelhost estimate-memory` reads them. Built in, unlike other
 * devices. */
#ifndef AH_META_DEVICE_H
#define AH_META_DEVICE_H

/* Make it known; further calls do nothing. After ah_cpu_open. */
void ah_meta_open(void);

#endif
