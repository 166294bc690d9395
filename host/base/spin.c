/* libgomp's waiting threads should sleep soon: with its default they spin for milliseconds, and on a machine that has
 * other work a two-thread step then takes ten times as long (measured). It reads GOMP_SPINCOUNT by getenv before main,
 * when the environment cannot be changed yet; so this program answers that one question itself. What the user set
 * wins. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *find(const char *name)
{
    size_t length = strlen(name);
    for (char **at = environ; at && *at; at++)
        if (!strncmp(*at, name, length) && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

char *getenv(const char *name)
{
    static char spins[] = "20000"; /* about 0.1 ms */
    char *value = find(name);
    if (!value && !strcmp(name, "GOMP_SPINCOUNT") && !find("OMP_WAIT_POLICY"))
        return spins;
    return value;
}
