/* The output of all ranks on one stream, by whole lines.
 *
 * Lines of rank 0 pass bare, those of rank r carry "[r<r>] ". A line is held for at most 50 ms, so that the same line
 * from several ranks shows once, as "[r0-r3] text"; the order of each rank's own lines is kept. On a terminal rank 0's
 * unfinished line (a prompt, a progress bar redrawn after a carriage return) shows at once and stays below the other
 * lines. Of a line that was redrawn only what it finally said is kept. Times are ah_now_ns. */
#ifndef AH_CLI_LAUNCH_OUTPUT_H
#define AH_CLI_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_output;

/* Output of `ranks` ranks to descriptor `fd`, which is not closed. */
int ah_output_open(struct ah_output **out, int fd, int ranks, bool terminal);
void ah_output_feed(struct ah_output *output, int rank, const char *text, size_t bytes, int64_t now);
/* The rank writes no more: its unfinished line is a line, and nobody waits for it. */
void ah_output_end(struct ah_output *output, int rank, int64_t now);
/* Write what is due; returns the time when more will be, or -1. */
int64_t ah_output_flush(struct ah_output *output, int64_t now);
/* The errno with which writing failed for good (EPIPE: nobody reads any more), else 0. */
int ah_output_error(const struct ah_output *output);
/* Write everything. */
void ah_output_close(struct ah_output *output);

#endif
