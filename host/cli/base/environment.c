/* An array of NAME=VALUE strings, each allocated here. */
#include "cli/base/environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory/array.h"
#include "base/status/status.h"

int ah_environment_copy(struct ah_environment *environment)
{
    *environment = (struct ah_environment){0};
    size_t count = 0;
    while (environ && environ[count])
        count++;
    AH_TRY(ah_grow(&environment->at, count + 1, &environment->room, sizeof(char *)));
    for (; environment->count < count; environment->count++) {
        environment->at[environment->count] = strdup(environ[environment->count]);
        if (!environment->at[environment->count]) {
            ah_environment_close(environment);
            return ah_fail(AH_ENOMEM, "out of memory");
        }
    }
    environment->at[count] = NULL;
    return 0;
}

void ah_environment_close(struct ah_environment *environment)
{
    for (size_t i = 0; i < environment->count; i++)
        free(environment->at[i]);
    free(environment->at);
    *environment = (struct ah_environment){0};
}

static char **environment_find(struct ah_environment *environment, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < environment->count; i++)
        if (!strncmp(environment->at[i], name, length) && environment->at[i][length] == '=')
            return &environment->at[i];
    return NULL;
}

int ah_environment_set(struct ah_environment *environment, bool overwrite, const char *name, const char *format, ...)
{
    char *value, *text;
    va_list args;
    char **place = environment_find(environment, name);
    if (place && !overwrite)
        return 0;
    va_start(args, format);
    int written = vasprintf(&value, format, args);
    va_end(args);
    if (written < 0)
        return ah_fail(AH_ENOMEM, "out of memory");
    written = asprintf(&text, "%s=%s", name, value);
    free(value);
    if (written < 0)
        return ah_fail(AH_ENOMEM, "out of memory");
    if (place) {
        free(*place);
        *place = text;
        return 0;
    }
    int status = ah_grow(&environment->at, environment->count + 2, &environment->room, sizeof(char *));
    if (status < 0) {
        free(text);
        return status;
    }
    environment->at[environment->count++] = text;
    environment->at[environment->count] = NULL;
    return 0;
}
