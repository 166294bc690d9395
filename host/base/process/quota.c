/* Version 2 has cpu.max ("QUOTA PERIOD", or "max PERIOD"), version 1 cpu.cfs_quota_us and cpu.cfs_period_us (a quota of
 * -1: none). /proc/self/cgroup names the group within the hierarchy; a container may see its own group as the
 * hierarchy's root under a path of the host, so paths that are not there are skipped on the way up. */
#include "base/process/quota.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 4096 };

static bool quota_read(const char *folder, const char *name, const char *format, double *a, double *b)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    int wanted = b ? 2 : 1;
    bool found = file && fscanf(file, format, a, b) == wanted;
    if (file)
        fclose(file);
    return found;
}

/* Of one group; 0 for none. */
static double quota_of(const char *folder)
{
    double quota, period;
    bool found = quota_read(folder, "cpu.max", "%lf %lf", &quota, &period) ||
                 (quota_read(folder, "cpu.cfs_quota_us", "%lf", &quota, NULL) &&
                  quota_read(folder, "cpu.cfs_period_us", "%lf", &period, NULL));
    return found && quota > 0 && period > 0 ? quota / period : 0;
}

static double quota_least(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* Of a group and those around it, up to the hierarchy's root. */
static double quota_upwards(const char *root, const char *hierarchy, const char *group)
{
    char folder[PATH];
    double least = 0;
    size_t base = (size_t)snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, hierarchy);
    if (base >= sizeof folder || base + strlen(group) >= sizeof folder)
        return 0;
    strncpy(folder + base, group, sizeof folder - base - 1);
    folder[sizeof folder - 1] = 0;
    for (;;) {
        least = quota_least(least, quota_of(folder));
        char *slash = strrchr(folder + base, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

/* Is `cpu` one of the names "cpu,cpuacct"? */
static bool quota_has_cpu(const char *controllers)
{
    for (const char *at = controllers; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        if (strcspn(at, ",") == 3 && !strncmp(at, "cpu", 3))
            return true;
    return false;
}

/* A line of /proc/self/cgroup, "HIERARCHY:CONTROLLERS:GROUP". */
static double quota_of_line(const char *root, char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    char hierarchy[256];
    if (!group || group[1] != '/')
        return 0;
    *controllers++ = *group++ = 0;
    if (!*controllers)
        return quota_least(quota_upwards(root, "", group), quota_upwards(root, "/unified", group));
    if (!quota_has_cpu(controllers) || strchr(controllers, '/'))
        return 0;
    snprintf(hierarchy, sizeof hierarchy, "/%s", controllers);
    return quota_least(quota_upwards(root, hierarchy, group), quota_upwards(root, "/cpu", group));
}

double ah_processor_quota(const char *root)
{
    char path[PATH], line[PATH];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        least = quota_least(least, quota_of_line(root, line));
    if (file)
        fclose(file);
    return least;
}
