/* The end of a process that ran Lua: complete running saves, flush the output, report the rank's end. */
#pragma once

#include "cli/process/host.h"

/* End the process. The code becomes 1 where something could not be saved or written. */
int ah_shutdown_finish(struct ah_host *host, int code);
/* The same after a fatal error, with exit code 1: the error is reported to the launcher, else on stderr. */
int ah_shutdown_fail(struct ah_host *host, const char *text);
/* The same when the state cannot be closed any more (cli/process/host.h). */
void ah_shutdown_give_up(const char *text);
/* Print a notice on stderr, for ah_notice_set_output. */
void ah_shutdown_report(const char *line);
/* Make os.exit end the process in this way. AH_ELUA. */
int ah_shutdown_take_exit(struct ah_host *host);
