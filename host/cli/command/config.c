/* accelhost config: makes, shows and rewrites the file of settings that `accelhost launch` reads. A file is written
 * whole or not at all, for its owner's eyes. */
#include <libgen.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "base/status/nearest.h"
#include "base/status/status.h"
#include "cli/base/flags.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "cli/command/command.h"
#include "cli/command/config_questions.h"
#include "cli/launch/launch_settings.h"
#include "config/write.h"
#include "io/writer.h"

enum { PATH = 4096 };

struct config_options {
    const char *file, *precision;
};

#define FIELD(name) offsetof(struct config_options, name)
static const struct ah_flag config_flags[] = {
    {"--config_file", AH_FLAG_TEXT, FIELD(file), .value = "FILE",
     .help = "the file (default: $ACCELHOST_CONFIG_FILE, else default_config.yaml in $XDG_CONFIG_HOME/accelhost or "
             "~/.config/accelhost); JSON when its name ends with .json"},
    {"--mixed_precision", AH_FLAG_TEXT, FIELD(precision), .value = "TYPE",
     .help = "for `default`: no, bf16, fp16 or fp8 (default no)"},
};
enum { FLAGS = sizeof config_flags / sizeof *config_flags };

static void print_help(void)
{
    ah_help_print(
        "usage: accelhost config [options]\n"
        "       accelhost config default|show|update [options]\n"
        "       accelhost config keys\n\n"
        "Asks for the default settings of 'accelhost launch' and writes them to a file.\n"
        "`default` writes settings for this machine without asking, unless the file exists; `show` prints each\n"
        "setting and its source; `update` rewrites a file of Accelerate's, or an old one, with our names; `keys`\n"
        "lists every key, flag and variable, and the unsupported options of other launchers, as Markdown.\n\n"
        "options:");
    ah_flags_print(config_flags, FLAGS);
    ah_help_print(
        "\nexit codes: 0 ok, 1 the file could not be written or the answers ended, 2 usage or a file that is wrong");
}

static int write_text(const char *path, const char *text)
{
    struct ah_writer *writer;
    char copy[PATH];
    snprintf(copy, sizeof copy, "%s", path);
    AH_TRY(ah_folder_make(dirname(copy)));
    mode_t before = umask(077);
    int status = ah_writer_open(&writer, path);
    umask(before);
    AH_TRY(status);
    status = ah_writer_write(writer, text, strlen(text));
    if (status < 0) {
        ah_writer_abandon(writer);
        return status;
    }
    return ah_writer_commit(writer);
}

/* A signal meanwhile waits, so that no half of it is left. */
static int write_file(const struct ah_settings *settings, const char *path)
{
    char *text;
    sigset_t all, before;
    AH_TRY(ah_settings_format(settings, path, &text));
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    int status = write_text(path, text);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(text);
    if (status < 0)
        return ah_fail_prefix(status, "%s", path);
    printf("Written: %s\n", path);
    return 0;
}

static int config_fail(void)
{
    fflush(stdout);
    fprintf(stderr, "accelhost config: %s\n", ah_error_text());
    return 1;
}

static bool is_there(const char *path)
{
    return !access(path, F_OK);
}

static int run_questions(struct ah_settings *settings, const char *path)
{
    if (!isatty(STDIN_FILENO))
        return ah_usage("config", "this asks questions, and stdin is no terminal ('accelhost config default' writes a "
                        "file without asking)");
    printf("Settings of 'accelhost launch' for %s\nThis machine has ", path);
    ah_config_print_machine();
    if (is_there(path) && ah_settings_read_file(settings, path) < 0)
        return ah_usage("config", "%s (remove or mend the file first)", ah_error_text());
    puts("An empty answer keeps the value in brackets; Ctrl-C leaves the file unchanged.\n");
    if (ah_config_suggest_ranks(settings) < 0)
        return config_fail();
    int status = ah_config_ask(settings);
    if (status < 0)
        putchar('\n');
    return status < 0 || write_file(settings, path) < 0 ? config_fail() : 0;
}

static int run_default(struct ah_settings *settings, const char *path, const char *precision)
{
    if (is_there(path)) {
        fprintf(stderr, "accelhost config: %s exists ('accelhost config' asks for changes)\n", path);
        return 1;
    }
    const struct ah_setting_row *row = &ah_setting_rows[AH_SETTING_mixed_precision];
    if (ah_settings_set(settings, row, precision ? precision : "no", AH_FROM_FILE, "--mixed_precision", NULL) < 0)
        return ah_usage("config", "%s", ah_error_text());
    if (ah_config_suggest_ranks(settings) < 0)
        return config_fail();
    return write_file(settings, path) < 0 ? config_fail() : 0;
}

static int run_update(struct ah_settings *settings, const char *path)
{
    if (ah_settings_read_file(settings, path) < 0)
        return ah_usage("config", "%s", ah_error_text());
    if (write_file(settings, path) < 0)
        return config_fail();
    if (settings->idle)
        printf("Omitted, as no other value is possible: %s\n", settings->idle);
    return 0;
}

static int run_show(const char *file)
{
    struct ah_settings settings;
    int given = file ? 2 : 0;
    int first = ah_launch_settings_read(&settings, "config", print_help, given,
                                        (char *[]){(char *)"--config_file", (char *)(uintptr_t)file, NULL});
    if (first >= 0)
        ah_launch_settings_show(&settings);
    ah_settings_close(&settings);
    return first < 0 ? -1 - first : 0;
}

static int find_path(const char *flag, char path[PATH])
{
    bool named;
    AH_TRY(ah_launch_config_path(flag, path, PATH, &named));
    return *path ? 0 : ah_fail(AH_EINVAL, "ACCELHOST_CONFIG_FILE is empty, which disables the file: use --config_file");
}

static int config_run(const char *word, const struct config_options *options)
{
    struct ah_settings settings;
    char path[PATH];
    int code = 2;
    if (find_path(options->file, path) < 0)
        return ah_usage("config", "%s", ah_error_text());
    if (ah_settings_open(&settings) < 0)
        return config_fail();
    if (!strcmp(word, "default"))
        code = run_default(&settings, path, options->precision);
    else if (!strcmp(word, "update"))
        code = run_update(&settings, path);
    else
        code = run_questions(&settings, path);
    ah_settings_close(&settings);
    return code;
}

int ah_cli_config(int argc, char **argv)
{
    static const char *const words[] = {"default", "show", "update", "keys", NULL};
    struct config_options options = {0};
    const char *word = argc && argv[0][0] != '-' ? argv[0] : "";
    int named = *word != 0, known = !named;
    for (int i = 0; words[i]; i++)
        known |= !strcmp(words[i], word);
    if (!known) {
        const char *near = ah_nearest(word, words);
        return ah_usage("config", near ? "there is no '%s' (did you mean '%s'?)" : "there is no '%s' (known: default, "
                        "show, update, keys)", word, near);
    }
    int first = ah_flags_read("config", config_flags, FLAGS, print_help, argc - named, argv + named, &options);
    if (first < 0)
        return -1 - first;
    if (first < argc - named)
        return ah_usage("config", "unexpected argument '%s'", argv[named + first]);
    if (options.precision && strcmp(word, "default"))
        return ah_usage("config", "--mixed_precision is for 'accelhost config default'");
    if (!strcmp(word, "keys"))
        ah_config_print_keys();
    else if (!strcmp(word, "show"))
        return run_show(options.file);
    else
        return config_run(word, &options);
    return 0;
}
