/* The number that renorm adds to a norm before it divides by it, as PyTorch does. */
#pragma once

#define AH_RENORM_EPS 1e-7
