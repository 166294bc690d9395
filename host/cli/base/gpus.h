/* How many GPUs the ranks of a job would see. */
#ifndef AH_CLI_GPUS_H
#define AH_CLI_GPUS_H

#include <stddef.h>

/* Count them, with CUDA_VISIBLE_DEVICES as it is or (not NULL) as `visible` says; where there are none, `reason` is
 * why, in one line. Without NVIDIA's driver that is known at once. AH_EIO when the driver does not answer. */
int ah_gpus_count(const char *visible, int *count, char *reason, size_t room);

/* Are these numbers or identifiers with commas between them, as CUDA_VISIBLE_DEVICES takes them, and among those that
 * it names already? How many there are; AH_EINVAL. */
int ah_gpus_check(const char *what, const char *ids, int *count);

#endif
