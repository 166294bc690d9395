/* The file to which a failed process writes its error, as torch.distributed.elastic's `record` does: torchrun prints
 * those of its ranks, and the parent of a job reads the job's. TORCHELASTIC_ERROR_FILE names it. */
#pragma once

#include <stdbool.h>

/* Write an error file. `text`: the failure, the message first. `code`: the failed process's exit code, negative for a
 * signal, 0 if unknown. `victim`: it failed because another one had. A failure to write is reported on stderr. */
void ah_error_file_write(const char *path, const char *text, int code, bool victim);
