/* A descriptor that is written without ever blocking on its reader.
 *
 * Bytes that the reader has not accepted yet are queued in order, so nothing is lost; the caller checks the queue's
 * size and adds no more while it is large. Pipes and terminals are opened again, so that O_NONBLOCK is not set on a
 * description that others share. A failure to write is kept too, and everything after it is dropped. */
#pragma once

#include <stddef.h>

struct ah_output_writer;

/* `fd` is not closed. */
int ah_output_writer_open(struct ah_output_writer **out, int fd);
void ah_output_writer_close(struct ah_output_writer *writer);

/* Append; written at once when much has gathered, else by the next push. */
void ah_output_writer_write(struct ah_output_writer *writer, const char *text, size_t bytes);
/* Write as much as the reader accepts now. */
void ah_output_writer_push(struct ah_output_writer *writer);
/* Return the unwritten bytes. */
size_t ah_output_writer_pending(const struct ah_output_writer *writer);
/* The descriptor to poll for POLLOUT while bytes are pending. */
int ah_output_writer_fd(const struct ah_output_writer *writer);
/* The errno with which writing failed for good (EPIPE: the reader has closed it), else 0. */
int ah_output_writer_error(const struct ah_output_writer *writer);
