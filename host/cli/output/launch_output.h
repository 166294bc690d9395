/* The output of all ranks on standard output and error, by whole lines.
 *
 * Lines of rank 0 have no prefix, those of rank r have "[r<r>] ". A line is held for at most 50 ms, so that the same
 * line from several ranks shows once, as "[r0-r3] text"; the order of each rank's own lines is kept. Bytes pass as they
 * are, except on a terminal: there rank 0's unfinished line (a prompt, a progress bar redrawn after a carriage return)
 * shows at once and stays below the other lines, and of a redrawn line only the final text is kept. Elsewhere an
 * unfinished line is shown after a second, and is broken only by another line.
 *
 * No call blocks on a slow reader: while a stream is full the caller adds no more to it, and polls ah_output_fd. Times
 * are ah_now_ns. Streams: 0 output, 1 error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ah_output;

/* Output of `ranks` ranks to two descriptors, which are not closed; a stream with fd -1 is not used. */
int ah_output_open(struct ah_output **out, const int fd[2], const bool terminal[2], int ranks);
/* Print lines of all ranks without a prefix, instead of rank 0's own, which then have "[r0] ". */
void ah_output_collapse_all(struct ah_output *output, bool all);
/* Report whether this process's output and error are terminals, and their width (*columns stays for none). */
void ah_output_look_at_terminal(bool terminal[2], int *columns);
/* Free the output; unwritten bytes are lost. */
void ah_output_close(struct ah_output *output);

/* Add a rank's output. */
void ah_output_feed(struct ah_output *output, int stream, int rank, const char *text, size_t bytes, int64_t now);
/* The rank writes no more: its unfinished line is a line, and is no longer waited for. */
void ah_output_end(struct ah_output *output, int stream, int rank, int64_t now);
/* Print complete lines of the launcher itself, after all output of the ranks so far. */
void ah_output_say(struct ah_output *output, int stream, const char *text);

/* Write the lines that are due at `now`; all output up to then must have been added. Returns the time when more is due,
 * or -1. A line is unfinished because its rank has not written the rest, never because it has not been read yet. */
int64_t ah_output_flush(struct ah_output *output, int64_t now);
/* Write all output so far, unfinished lines too, as lines; more may follow. */
void ah_output_settle(struct ah_output *output);
/* Hold nothing back any longer. */
void ah_output_finish(struct ah_output *output);

/* Is the stream so full of unread output that the caller should add no more for now? */
bool ah_output_is_full(const struct ah_output *output, int stream);
/* Return the descriptor to poll for POLLOUT, -1 while nothing is unwritten. */
int ah_output_fd(const struct ah_output *output, int stream);
/* Return the unwritten bytes of both streams. */
size_t ah_output_pending(const struct ah_output *output);
/* The errno with which writing failed for good (EPIPE: the reader has closed it), else 0. */
int ah_output_error(const struct ah_output *output);
