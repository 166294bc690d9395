/* JSON by jansson, which accepts UTF-8 only. */
#include "cli/base/error_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes that are no UTF-8 make all that is beyond ASCII unreadable. */
static json_t *make_text(const char *text, size_t bytes)
{
    json_t *value = json_stringn(text, bytes);
    char *copy = value ? NULL : strndup(text, bytes);
    if (!copy)
        return value;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    value = json_string(copy);
    free(copy);
    return value;
}

/* Of equal times the lowest rank's failure is to blame, and times are whole seconds: so that of a failure which follows
 * from another's is the next one. */
static json_t *error_file_describe(const char *text, int code, bool victim)
{
    char when[32];
    size_t bytes = strlen(text);
    while (bytes && text[bytes - 1] == '\n')
        bytes--;
    snprintf(when, sizeof when, "%lld", (long long)time(NULL) + victim);
    json_t *message = json_pack("{s:o*, s:{s:o*, s:s}}", "message", make_text(text, strcspn(text, "\n")), "extraInfo",
                                "py_callstack", make_text(text, bytes), "timestamp", when);
    if (message && code)
        json_object_set_new(message, "errorCode", json_integer(code));
    return json_pack("{s:o}", "message", message);
}

void ah_error_file_write(const char *path, const char *text, int code, bool victim)
{
    json_t *error = error_file_describe(text, code, victim);
    errno = ENOMEM;
    if (!error || json_dump_file(error, path, JSON_COMPACT))
        fprintf(stderr, "accelhost: cannot write '%s' (TORCHELASTIC_ERROR_FILE): %s\n", path, strerror(errno));
    json_decref(error);
}
