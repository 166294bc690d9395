/* The reduction of the losses' results. */
#pragma once

enum ah_reduction { AH_REDUCTION_NONE, AH_REDUCTION_MEAN, AH_REDUCTION_SUM };

/* Parse "none", "mean" or "sum"; AH_EINVAL names `op`. */
int ah_reduction_parse(const char *op, const char *text, enum ah_reduction *out);
