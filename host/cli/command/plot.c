/* accelhost plot: words in, curves out; everything between is Lua (lua/accelhost/plot), in a new Lua host. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/process/host.h"

struct plot_options {
    const char *output, *keys;
    double smooth, axis, width, height;
    bool log;
};

static const char axes[] = "step time epoch";

#define FIELD(name) offsetof(struct plot_options, name)
static const struct ah_flag plot_flags[] = {
    {"-o", AH_FLAG_TEXT, FIELD(output), .value = "FILE",
     .help = "draw into FILE.svg or FILE.png (needs cairo), not here"},
    {"--output", AH_FLAG_TEXT, FIELD(output), .help = NULL},
    {"--keys", AH_FLAG_TEXT, FIELD(keys), .value = "LIST",
     .help = "which curves, by name, such as loss,valid/*; one plot each (default all)"},
    {"--smooth", AH_FLAG_VALUE, FIELD(smooth), {.kind = AH_VALUE_NUMBER, 0, 0.9999}, "WEIGHT",
     "of the values before, from 0 to below 1, as in TensorBoard: 0.6 is its default, 0 here"},
    {"--x", AH_FLAG_VALUE, FIELD(axis), {.kind = AH_VALUE_CHOICE, .words = axes}, "AXIS",
     "step (default), time since the run began, or epoch, the value logged by that name"},
    {"--log", AH_FLAG_SWITCH, FIELD(log), .help = "logarithms of the values; those that are not above 0 are left out"},
    {"--width", AH_FLAG_VALUE, FIELD(width), {.kind = AH_VALUE_WHOLE, 20, 20000}, "N",
     "of the whole, in columns or pixels (default the terminal's, or 80; 960 in a file)"},
    {"--height", AH_FLAG_VALUE, FIELD(height), {.kind = AH_VALUE_WHOLE, 6, 20000}, "N",
     "of each plot, in lines or pixels (default 17; 300 in a file)"},
};
enum { FLAGS = sizeof plot_flags / sizeof *plot_flags, FIXED = 7 };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost plot RUN... [options]\n\n"
        "Draws the curves of several runs in one plot per name, with their least, greatest and last values. RUN is\n"
        "the output of a tracker: an event file of TensorBoard, a .jsonl or .csv file, or a folder with such files,\n"
        "whose folders are runs too. Draws in the terminal, in Braille; on a terminal each run has a colour (not\n"
        "with NO_COLOR).\n\noptions:");
    ah_flags_print(plot_flags, FLAGS);
    ah_help_print("\nexit codes: 0 ok, 1 a run or a name is not there, 2 usage");
}

static char *number_text(char text[32], double number)
{
    snprintf(text, 32, "%.9g", number);
    return text;
}

static int plot_draw(const struct plot_options *options, char **runs, int count)
{
    static const char chunk[] = "exit_code = require 'accelhost.plot'(...)\n";
    char smooth[32], axis[32], width[32], height[32];
    char **words = calloc((size_t)(FIXED + count), sizeof *words);
    if (!words) {
        fputs("accelhost plot: out of memory\n", stderr);
        return 1;
    }
    words[0] = (char *)(options->output ? options->output : "");
    words[1] = (char *)(options->keys ? options->keys : "");
    words[2] = number_text(smooth, options->smooth);
    words[3] = number_text(axis, options->axis);
    words[4] = number_text(width, options->width);
    words[5] = number_text(height, options->height);
    words[6] = (char *)(options->log ? "log" : "");
    memcpy(words + FIXED, runs, (size_t)count * sizeof *runs);
    int code = ah_host_run_command("plot", chunk, "=plot", FIXED + count, words);
    free(words);
    return code;
}

/* Options may precede, separate and follow the runs, which are moved to the front of argv. */
int ah_cli_plot(int argc, char **argv)
{
    struct plot_options options = {0};
    int count = 0;
    for (int at = 0; at < argc;) {
        int read = ah_flags_read("plot", plot_flags, FLAGS, print_help, argc - at, argv + at, &options);
        if (read < 0)
            return -1 - read;
        at += read;
        if (at < argc)
            argv[count++] = argv[at++];
    }
    if (!count)
        return ah_usage("plot", "expected a run: a file or folder that a tracker has written");
    const char *end = options.output ? strrchr(options.output, '.') : NULL;
    if (options.output && (!end || (strcmp(end, ".svg") && strcmp(end, ".png"))))
        return ah_usage("plot", "-o expects the name of a .svg or .png file, got '%s'", options.output);
    return plot_draw(&options, argv, count);
}
