/* A recording (base/trace/trace.h) as a file that https://ui.perfetto.dev and chrome://tracing open. */
#pragma once

#include "base/trace/trace.h"

/* Write it as the process of that rank. AH_EIO, AH_ENOMEM. */
int ah_trace_file_write(const struct ah_trace *trace, const char *path, int rank);
