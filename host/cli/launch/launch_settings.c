/* The table of settings as flags: each row's name and other names become options whose texts are kept, and given to
 * the settings after the file and the variables. Every option of the table has a place among `text`. */
#include "cli/launch/launch_settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/status/nearest.h"
#include "base/status/printable.h"
#include "cli/base/flags.h"
#include "cli/base/usage.h"
#include "cli/job/orphans.h"

enum { FLAGS = 192, NAME = 48, PATH = 4096 };

struct flags {
    struct ah_flag flag[FLAGS];
    const struct ah_setting_row *row[FLAGS];
    char name[FLAGS][NAME];
    const char *text[FLAGS];
    int count;
};

static void launch_settings_add(struct flags *flags, const struct ah_setting_row *row, const char *name, size_t bytes)
{
    if (flags->count == FLAGS)
        return;
    struct ah_flag *flag = &flags->flag[flags->count];
    char *spelt = flags->name[flags->count];
    bool refused = row >= ah_setting_rows + AH_SETTINGS && (!row->only || strchr(row->name, '*'));
    snprintf(spelt, NAME, "%s%.*s", name[0] == '-' ? "" : "--", (int)bytes, name);
    flag->name = spelt;
    flag->kind = refused ? AH_FLAG_REFUSED : row->rule.kind == AH_VALUE_SWITCH ? AH_FLAG_YES : AH_FLAG_TEXT;
    flag->field = (size_t)flags->count * sizeof flags->text[0];
    flag->help = row->reason;
    flags->row[flags->count++] = row;
}

static void make_flags(struct flags *flags)
{
    memset(flags, 0, sizeof *flags);
    for (const struct ah_setting_row *row = ah_setting_rows; row->name; row++) {
        launch_settings_add(flags, row, row->name, strlen(row->name));
        for (const char *at = row->aliases ? row->aliases : ""; *at;) {
            size_t bytes = strcspn(at, " ");
            launch_settings_add(flags, row, at, bytes);
            at += bytes + (at[bytes] == ' ');
        }
    }
}

/* Is this another name of its row, and no short one? */
static bool is_alias(const struct flags *flags, int i)
{
    return flags->name[i][1] == '-' && strcmp(flags->name[i] + 2, flags->row[i]->name);
}

static int apply_flags(struct ah_settings *settings, const struct flags *flags)
{
    for (int i = 0; i < flags->count; i++) {
        if (!flags->text[i])
            continue;
        for (int j = i + 1; j < flags->count && flags->row[j] == flags->row[i]; j++)
            if (flags->text[j])
                return ah_fail(AH_EINVAL, "%s and %s are the same setting: set only one", flags->name[i],
                               flags->name[j]);
        AH_TRY(ah_settings_set(settings, flags->row[i], flags->text[i], AH_FROM_FLAG, flags->name[i],
                               flags->name[i]));
    }
    return 0;
}

int ah_launch_config_path(const char *flag, char *path, size_t room, bool *named)
{
    const char *variable = getenv("ACCELHOST_CONFIG_FILE"), *text = flag ? flag : variable;
    *named = text && *text;
    if (!text)
        return ah_settings_default_path(path, room);
    if ((size_t)snprintf(path, room, "%s", text) >= room)
        return ah_fail(AH_EINVAL, "the configuration file's name is longer than %zu bytes", room - 1);
    return 0;
}

static int read_file(struct ah_settings *settings, const char *flag)
{
    char path[PATH];
    bool named;
    int status = ah_launch_config_path(flag, path, sizeof path, &named);
    if (status < 0 && !named)
        return 0; /* no home, no file */
    AH_TRY(status);
    /* A home folder that may not be searched (another user's, under docker run --user) holds no file of this user. */
    if (!*path || (!named && access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)))
        return 0;
    return ah_settings_read_file(settings, path);
}

static const char *flag_of(const struct flags *flags, enum ah_setting setting)
{
    for (int i = 0; i < flags->count; i++)
        if (flags->row[i] == &ah_setting_rows[setting] && flags->text[i])
            return flags->text[i];
    return NULL;
}

/* A rank that a list of streams names is one of the job's. */
static int check_streams(const struct ah_setting_value *streams, int ranks)
{
    for (const char *at = streams->text ? streams->text : ""; strchr(at, ':');) {
        char *end;
        long rank = strtol(at, &end, 10);
        if (rank >= ranks)
            return ah_fail(AH_EINVAL, "%s: there is no rank %ld among %d", streams->where, rank, ranks);
        at = end + 2 + (end[2] == ',');
    }
    return 0;
}

/* There is a share for each rank. */
static int check_shares(const struct ah_setting_value *share, int ranks)
{
    if (!share->text || share->number == ranks)
        return 0;
    return ah_fail(AH_EINVAL, "%s: %s is for %.0f ranks, but num_processes is %d", share->where, share->text,
                   share->number, ranks);
}

bool ah_launch_replaces(const struct ah_settings *settings)
{
    return settings->value[AH_SETTING_recover].number != 0;
}

static int launch_settings_check(const struct ah_settings *settings)
{
    int ranks = ah_launch_ranks(settings);
    if (ah_launch_is_handed_over(settings))
        return ah_launch_check_engine(settings);
    if (settings->value[AH_SETTING_dry_run].number)
        return ah_fail(AH_EINVAL, "%s: shows the command of --launcher mpirun or srun",
                       settings->value[AH_SETTING_dry_run].where);
    AH_TRY(ah_launch_check_machines(settings));
    if (ah_launch_machines(settings) > 1 && ah_launch_replaces(settings))
        return ah_fail(AH_EINVAL, "%s: live recovery is for one machine, and num_machines is %d",
                       settings->value[AH_SETTING_recover].where, ah_launch_machines(settings));
    if (ah_launch_machines(settings) > 1)
        return 0; /* the number of ranks is known after the rendezvous */
    AH_TRY(check_shares(&settings->value[AH_SETTING_share], ranks));
    AH_TRY(check_streams(&settings->value[AH_SETTING_tee], ranks));
    return check_streams(&settings->value[AH_SETTING_redirects], ranks);
}

static void launch_settings_report(const struct ah_settings *settings, const struct flags *flags)
{
    for (int i = 0; i < flags->count; i++)
        if (flags->text[i] && is_alias(flags, i) && flags->row[i] < ah_setting_rows + AH_SETTINGS)
            fprintf(stderr, "accelhost launch: %s is called --%s here\n", flags->name[i], flags->row[i]->name);
    for (int i = 0; i < AH_SETTINGS; i++) {
        const struct ah_setting_value *value = &settings->value[i];
        char text[512], line[1024];
        if (!value->under || !strncmp(value->under_where, "OMP_", 4))
            continue;
        ah_settings_write(settings, i, text, sizeof text);
        snprintf(line, sizeof line, "%s is %s (%s), not %s (%s)", ah_setting_rows[i].name, text, value->where,
                 value->under, value->under_where);
        ah_make_printable(line);
        fprintf(stderr, "accelhost launch: %s\n", line);
    }
}

/* Report a variable with the program's prefix that is not read, and the one that may have been meant. */
static void report_misspelt(void)
{
    static const char *const read[] = {
#define VARIABLE(name) #name,
#include "cli/base/variables.def"
#undef VARIABLE
    };
    enum { OTHERS = sizeof read / sizeof *read };
    const char *known[OTHERS + AH_SETTINGS + 1] = {NULL};
    int count = 0;
    for (; count < OTHERS; count++)
        known[count] = read[count];
    for (int i = 0; i < AH_SETTINGS; i++)
        if (ah_setting_rows[i].variable)
            known[count++] = ah_setting_rows[i].variable;
    for (char **entry = environ; entry && *entry; entry++) {
        char name[64];
        size_t bytes = strcspn(*entry, "=");
        if (strncmp(*entry, "ACCELHOST_", 10) || bytes >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)bytes, *entry);
        const char *near = ah_nearest(name, known);
        if (near && strcmp(near, name))
            fprintf(stderr, "accelhost launch: %s is no variable of this program (did you mean %s?)\n", name, near);
    }
}

static int launch_settings_load(struct ah_settings *settings, const struct flags *flags)
{
    AH_TRY(read_file(settings, flag_of(flags, AH_SETTING_config_file)));
    AH_TRY(ah_settings_read_variables(settings));
    AH_TRY(apply_flags(settings, flags));
    AH_TRY(ah_launch_settle_processes(settings));
    return launch_settings_check(settings);
}

int ah_launch_settings_read(struct ah_settings *settings, const char *command, void (*help)(void), int argc,
                            char **argv)
{
    struct flags *flags = malloc(sizeof *flags);
    if (!flags || ah_settings_open(settings) < 0) {
        free(flags);
        *settings = (struct ah_settings){0};
        return -1 - ah_refuse(command, AH_ENOMEM, "out of memory");
    }
    make_flags(flags);
    int first = ah_flags_read(command, flags->flag, flags->count, help, argc, argv, flags->text);
    int status = first >= 0 ? launch_settings_load(settings, flags) : 0;
    if (status < 0)
        first = -1 - ah_refuse(command, status, ah_error_text());
    /* In a rank of another job the variables are set by that job's launcher, and no mistake. */
    if (first >= 0 && !settings->value[AH_SETTING_quiet].number && !getenv(AH_JOB_MARK)) {
        launch_settings_report(settings, flags);
        report_misspelt();
    }
    free(flags);
    return first;
}

/* "seconds ... (default 600; also -q)" */
static void launch_settings_describe(const struct ah_setting_row *row, char *text, size_t room)
{
    const char *dash = row->aliases ? strchr(row->aliases, '-') : NULL;
    const char *fallback = row->fallback_text ? row->fallback_text : row->fallback;
    fallback = row->rule.kind == AH_VALUE_SWITCH ? NULL : fallback;
    if (row->only)
        snprintf(text, room, "%s (only %.*s: %s)", row->help, (int)strcspn(row->only, " "), row->only, row->reason);
    else if (fallback)
        snprintf(text, room, "%s (default %s%s%s)", row->help, fallback, dash ? "; also " : "", dash ? dash : "");
    else
        snprintf(text, room, dash ? "%s (also %s)" : "%s", row->help, dash);
}

void ah_launch_settings_help(void)
{
    static const char *const titles[AH_GROUPS] = {"processes", "training", "restarts", "limits", "output", "program"};
    for (int group = 0; group < AH_GROUPS; group++) {
        printf("\n%s:\n", titles[group]);
        for (int i = 0; i < AH_SETTINGS; i++) {
            const struct ah_setting_row *row = &ah_setting_rows[i];
            char name[64], text[512];
            if ((int)row->group != group)
                continue;
            snprintf(name, sizeof name, "--%s", row->name);
            launch_settings_describe(row, text, sizeof text);
            ah_flags_print_line(name, row->value, text);
        }
    }
    ah_flags_print_line("--help", NULL, "this text");
}

static void print_row(const char *name, const char *value, const char *where)
{
    printf("%-28s %-16s %s\n", name, value, where);
}

void ah_launch_settings_show(const struct ah_settings *settings)
{
    char text[512], path[PATH];
    bool named;
    if (settings->file)
        print_row("config_file", "", settings->file);
    else if (ah_launch_config_path(NULL, path, sizeof path, &named) == 0 && *path && !named)
        print_row("config_file", "", "none (no default_config.yaml)");
    else
        print_row("config_file", "", "none");
    for (int i = 0; i < AH_SETTINGS; i++) {
        const struct ah_setting_row *row = &ah_setting_rows[i];
        const struct ah_setting_value *value = &settings->value[i];
        if (row->not_in_file)
            continue;
        ah_settings_write(settings, i, text, sizeof text);
        if (i == AH_SETTING_num_cpu_threads_per_process && !value->text) {
            int share = ah_cpu_count() / ah_launch_ranks(settings);
            snprintf(text, sizeof text, "%d", share < 1 ? 1 : share);
        }
        char where[PATH + 64];
        if (!value->text && row->fallback_text)
            snprintf(where, sizeof where, "default (%s)", row->fallback_text);
        else
            snprintf(where, sizeof where, "%s", value->where ? value->where : "default");
        print_row(row->name, *text ? text : "-", where);
    }
    if (settings->idle)
        printf("accepted from the file without effect: %s\n", settings->idle);
}
