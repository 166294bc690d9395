/* Lines for the user that are no result of a call: notices, and the log of a topic.
 *
 * Library code does not print; it passes such a line to ah_notice. The program sets the output function before other
 * threads start; until then lines are dropped. Any thread may call. */
#pragma once

#include <stdbool.h>

/* Set the output function, which receives lines without a line end. NULL: lines are dropped. */
void ah_notice_set_output(void (*output)(const char *line));

/* Print a notice, made printable (base/status/printable.h). */
void ah_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print a notice, but the same line only once per process. */
void ah_notice_once(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Is the topic's log enabled: is its name in the list ACCELHOST_DEBUG ("comm,alloc")? */
bool ah_log_enabled(const char *topic);
