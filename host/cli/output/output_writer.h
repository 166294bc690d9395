/* A descriptor that is written without ever waiting for its reader.
 *
 * What the reader has not taken yet is kept, in order, so nothing is lost; who feeds a sink looks at its size and
 * feeds no more while it is large. Pipes and terminals are opened anew, so that O_NONBLOCK is not set on a description
 * that others share. A failure to write is kept too, and everything after it is dropped. */
#ifndef AH_CLI_OUTPUT_WRITER_H
#define AH_CLI_OUTPUT_WRITER_H

#include <stddef.h>

struct ah_sink;

/* `fd` is not closed. */
int ah_sink_open(struct ah_sink **out, int fd);
void ah_sink_close(struct ah_sink *sink);

/* Append; written at once when much has gathered, else by the next push. */
void ah_sink_write(struct ah_sink *sink, const char *text, size_t bytes);
/* Write what the reader takes now. */
void ah_sink_push(struct ah_sink *sink);
/* Bytes that the reader has not taken. */
size_t ah_sink_pending(const struct ah_sink *sink);
/* The descriptor to poll for POLLOUT while bytes are pending. */
int ah_sink_fd(const struct ah_sink *sink);
/* The errno with which writing failed for good (EPIPE: nobody reads any more), else 0. */
int ah_sink_error(const struct ah_sink *sink);

#endif
