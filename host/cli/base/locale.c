/* setlocale of this process, libraries included: every category except LC_NUMERIC, which stays "C".
 *
 * With a decimal comma, printf and strtod of libraries and of this program would write and read files (JSON, CSV, YAML,
 * headers of checkpoints) that no other program reads. The executable's setlocale precedes the C library's for all
 * shared libraries, threads and forks, so no code path has to protect itself. A locale that a library sets for its
 * own thread by uselocale is its own affair. */
#include <dlfcn.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 1024 };

static char *set_in_library(int category, const char *name)
{
    char *(*next)(int, const char *) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "setlocale");
    return next ? next(category, name) : NULL;
}

static const struct {
    int category;
    const char *name;
} categories[] = {
    {LC_CTYPE, "LC_CTYPE"},
    {LC_NUMERIC, "LC_NUMERIC"},
    {LC_TIME, "LC_TIME"},
    {LC_COLLATE, "LC_COLLATE"},
    {LC_MONETARY, "LC_MONETARY"},
    {LC_MESSAGES, "LC_MESSAGES"},
    {LC_PAPER, "LC_PAPER"},
    {LC_NAME, "LC_NAME"},
    {LC_ADDRESS, "LC_ADDRESS"},
    {LC_TELEPHONE, "LC_TELEPHONE"},
    {LC_MEASUREMENT, "LC_MEASUREMENT"},
    {LC_IDENTIFICATION, "LC_IDENTIFICATION"},
};

/* The length of a category's part of a composite name, "LC_CTYPE=en_US.UTF-8;LC_NUMERIC=C;...", and its start. */
static size_t locale_part(const char *composite, const char *category, const char **start)
{
    const char *at = strstr(composite, category);
    if (!at)
        return 0;
    *start = at + strlen(category) + 1;
    return strcspn(*start, ";");
}

/* The composite name of `name`, simple or composite, with LC_NUMERIC=C; false where it does not fit. */
static bool locale_name(const char *name, char *out, size_t room)
{
    bool composite = strchr(name, ';') != NULL;
    size_t used = 0;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        const char *value = categories[i].category == LC_NUMERIC ? "C" : name;
        size_t length = strlen(value);
        if (composite && categories[i].category != LC_NUMERIC) {
            value = "C";
            length = locale_part(name, categories[i].name, &value);
            length = length ? length : 1;
        }
        int written = snprintf(out + used, room - used, "%s%s=%.*s", i ? ";" : "", categories[i].name, (int)length,
                               value);
        if (written < 0 || (size_t)written >= room - used)
            return false;
        used += (size_t)written;
    }
    return true;
}

/* As the C library's. NULL for LC_NUMERIC with another name than "C" or "POSIX"; LC_ALL leaves LC_NUMERIC as it is. */
char *setlocale(int category, const char *name)
{
    char composite[NAME];
    if (!name || (category != LC_ALL && category != LC_NUMERIC))
        return set_in_library(category, name);
    if (category == LC_NUMERIC)
        return !*name || !strcmp(name, "C") || !strcmp(name, "POSIX") ? set_in_library(LC_NUMERIC, "C") : NULL;
    return locale_name(name, composite, sizeof composite) ? set_in_library(LC_ALL, composite) : NULL;
}
