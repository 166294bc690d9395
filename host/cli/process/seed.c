/* Ranks of a job share a seed, as PyTorch's do not, so that weights and random splits made before `prepare` agree. */
#include "cli/process/seed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/process/entropy.h"
#include "base/status/status.h"
#include "tensor/device.h"

int ah_cli_seed(const struct ah_control_block *control)
{
    const char *text = getenv("ACCELHOST_SEED");
    uint64_t seed = control ? control->header->seed : ah_entropy_seed();
    if (text && *text) {
        char *end;
        errno = 0;
        seed = strtoull(text, &end, 10);
        if (errno || *end || strspn(text, "0123456789") != strlen(text) || seed >> 53)
            return ah_fail(AH_EINVAL, "ACCELHOST_SEED: expected an integer from 0 to 2^53 - 1, got '%s'", text);
    }
    ah_device_seed_all(seed);
    return 0;
}
