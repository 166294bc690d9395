/* The division of rows: a warp for each up to AH_ROW_SHORT elements, a block above. */
#pragma once

#include <stdint.h>

enum { AH_ROW_THREADS = 256, AH_ROW_SHORT = 1024 };
