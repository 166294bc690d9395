/* Log files of the ranks' output: FOLDER/RUN/attempt_K/RANK/stdout.log and stderr.log, as torchrun's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ah_rank_logs;

/* `folder` NULL: a new one among the system's temporary files. `tee` and `redirects` are checked texts of
 * AH_VALUE_STREAMS, which outlive this; a stream in neither has no file. AH_EIO. */
int ah_rank_logs_open(struct ah_rank_logs **out, const char *folder, const char *tee, const char *redirects, int ranks);
void ah_rank_logs_close(struct ah_rank_logs *logs);

/* The folder of this run. */
const char *ah_rank_logs_folder(const struct ah_rank_logs *logs);
/* The files of the next attempt, whose ranks here are those from `first` on. AH_EIO. */
int ah_rank_logs_begin(struct ah_rank_logs *logs, int attempt, int first);
/* Append a rank's output on a stream (0 output, 1 errors). */
void ah_rank_logs_write(struct ah_rank_logs *logs, int rank, int stream, const char *text, size_t bytes);
/* Is the stream written to the screen as well? */
bool ah_rank_logs_shows(const struct ah_rank_logs *logs, int rank, int stream);
/* The errno with which a file could not be written, once; that file gets no more. 0: all is well. */
int ah_rank_logs_take_error(struct ah_rank_logs *logs);
