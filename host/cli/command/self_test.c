/* accelhost test: a job whose script is built into the program (lua/accelhost/test), with a temporary folder for its
 * files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io/folder.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/launch/launch.h"
#include "cli/launch/launch_settings.h"

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost test [options]\n\n"
        "Checks the basics of scripts on this machine: collectives, equal random numbers, gradients and training\n"
        "equal to those of one process, loaders' shares, saving. In 2 processes, on GPUs one for each, unless\n"
        "the settings have another number; accepts the options of 'accelhost launch'.\n\noptions:");
    ah_launch_settings_help();
    ah_help_print("\nexit codes: 0 ok, 2 usage, 3 a check failed, 4 a collective timed out, 128+n ended by signal n");
}

static int self_test_run(const struct ah_settings *settings)
{
    static const char code[] = "require 'accelhost.test'(require 'accelhost', (...), "
                               "require 'accelhost._C'.system.now)";
    char folder[4096];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/accelhost-test-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "accelhost test: cannot make the folder '%s': %s\n", folder, strerror(errno));
        return 3;
    }
    int result = ah_launch_run(settings, 3, (char *[]){(char *)"-e", (char *)code, folder, NULL});
    ah_folder_remove(folder, NULL);
    return result;
}

int ah_cli_test(int argc, char **argv)
{
    struct ah_settings settings;
    int code, first = ah_launch_settings_read(&settings, "test", print_help, argc, argv);
    if (first < 0) {
        code = -1 - first;
    } else if (first < argc) {
        code = ah_usage("test", "unexpected argument '%s'", argv[first]);
    } else if (settings.value[AH_SETTING_show_config].number) {
        ah_launch_settings_show(&settings);
        code = 0;
    } else {
        const struct ah_setting_row *row = &ah_setting_rows[AH_SETTING_num_processes];
        const struct ah_setting_value *ranks = &settings.value[AH_SETTING_num_processes];
        if (ranks->origin == AH_FROM_DEFAULT && ranks->number < 2)
            ah_settings_set(&settings, row, "2", AH_FROM_DEFAULT, row->name, NULL);
        code = self_test_run(&settings);
    }
    ah_settings_close(&settings);
    return code;
}
