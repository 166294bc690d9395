/* A copy of this process's environment that a child gets instead, changed without touching this process's own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ah_environment {
    char **at; /* NULL-ended, for execve */
    size_t count, room; /* the NULL counts in the room */
};

/* AH_ENOMEM; nothing to close then. */
int ah_environment_copy(struct ah_environment *environment);
void ah_environment_close(struct ah_environment *environment);
/* Set `name`; `overwrite` false keeps an existing value. */
int ah_environment_set(struct ah_environment *environment, bool overwrite, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
