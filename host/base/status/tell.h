/* Lines for the user that are no result of a call: a notice, and the log of a topic.
 *
 * Library code does not print; it hands such a line over here. The program sets where lines go (nowhere until then)
 * before other threads start. Any thread may tell. */
#ifndef AH_BASE_TELL_H
#define AH_BASE_TELL_H

#include <stdbool.h>

/* Where lines go; they come without a line end. NULL: nowhere. */
void ah_tell_to(void (*sink)(const char *line));

/* A notice, always shown, made printable (base/status/printable.h). */
void ah_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A notice that is shown once in a process, however often the same line is reported. */
void ah_tell_once(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Is the topic's log wanted: is its name among the words of ACCELHOST_DEBUG ("comm,alloc")? */
bool ah_tells_of(const char *topic);

#endif
