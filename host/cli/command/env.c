/* accelhost env: the facts about program and machine for a problem report. The text is made in Lua, which sees the
 * library as a script does (lua/accelhost/util/environment.lua). */
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/launch/launch_settings.h"
#include "cli/process/host.h"

static void print_help(void)
{
    ah_help_print("usage: accelhost env\n\n"
                  "Prints the versions, the machine and the settings that are in force.\n\noptions:");
    ah_flags_print(NULL, 0);
}

int ah_cli_env(int argc, char **argv)
{
    static const char text[] = "require('accelhost.util.environment').print(...)";
    struct ah_host host = {0};
    int first = ah_flags_read("env", NULL, 0, print_help, argc, argv, NULL);
    if (first < 0)
        return -1 - first;
    if (first < argc)
        return ah_usage("env", "expected no argument, got '%s'", argv[first]);
    char path[4096];
    bool named;
    if (ah_launch_config_path(NULL, path, sizeof path, &named) < 0)
        path[0] = 0;
    int status = ah_host_open(&host, &(struct ah_host_options){0});
    if (status == 0)
        status = ah_host_run_text(&host, text, sizeof text - 1, "=env", 1, (char *[]){path});
    if (status < 0)
        fprintf(stderr, "accelhost: %s\n", status == AH_ELUA ? ah_host_error(&host) : ah_error_text());
    ah_host_close(&host);
    return status < 0 ? 1 : 0;
}
