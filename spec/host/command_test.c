/* cli/base/usage.h: errors that end as wrong usage, and others. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status/status.h"
#include "cli/base/usage.h"
#include "test.h"

/* The text that a call writes to stderr, and its result. */
static int command_refused(int status, char *text, size_t room)
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    int code = ah_refuse("launch", status, "out of memory");
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
    return code;
}

AH_TEST(memory_that_runs_out_before_a_job_starts_is_no_wrong_usage)
{
    char text[200];
    CHECK(command_refused(AH_ENOMEM, text, sizeof text) == 1);
    CHECK(!strcmp(text, "accelhost launch: out of memory\n"));
    CHECK(command_refused(AH_EINVAL, text, sizeof text) == 2);
    CHECK(!strcmp(text, "accelhost launch: out of memory\nTry 'accelhost launch --help'.\n"));
}
