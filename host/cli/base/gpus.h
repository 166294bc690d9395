/* Count the GPUs that the ranks of a job would see. */
#pragma once

#include <stddef.h>

/* Set *count, under CUDA_VISIBLE_DEVICES or, if not NULL, `visible`. If there is none, store the cause as one line in
 * `reason` (NULL: not wanted, which spares loading the plugin). AH_EIO when the driver does not answer. */
int ah_gpus_count(const char *visible, int *count, char *reason, size_t room);

/* Check a comma-separated list of GPU numbers or identifiers, as in CUDA_VISIBLE_DEVICES, against the GPUs which that
 * variable already allows, and set *count to its length. AH_EINVAL names `what`. */
int ah_gpus_check(const char *what, const char *ids, int *count);
