/* One pass over the words; each is searched for by its name, spelt with '_'. */
#include "cli/base/flags.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/nearest.h"
#include "base/status/version.h"
#include "cli/base/help_page.h"
#include "cli/base/usage.h"
#include "config/settings.h"

enum { NAME = 64 };

static void flags_spell(const char *word, size_t length, char name[NAME])
{
    snprintf(name, NAME, "%.*s", (int)(length < NAME ? length : NAME - 1), word);
    for (char *c = name + strspn(name, "-"); *c; c++)
        if (*c == '-')
            *c = '_';
}

static const struct ah_flag *flags_find(const struct ah_flag *flags, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        char known[NAME];
        size_t length = strlen(flags[i].name);
        flags_spell(flags[i].name, length, known);
        if (!strcmp(known, name) || (known[length - 1] == '*' && !strncmp(known, name, length - 1)))
            return &flags[i];
    }
    return NULL;
}

/* Options of other programs, and the equivalent here. */
static const char *const flags_elsewhere[][3] = {
    {"run", "-c", "here: -e CODE"},
    {"run", "-i", "there is no prompt: -e CODE runs a piece of code, the script name - reads stdin"},
};

static int flags_unknown(const char *command, const struct ah_flag *flags, int count, const char *word,
                         const char *name)
{
    static const char *const always[] = {"--help", "--version", "-e"};
    enum { ALWAYS = sizeof always / sizeof *always };
    for (size_t i = 0; i < sizeof flags_elsewhere / sizeof *flags_elsewhere; i++)
        if (!strcmp(flags_elsewhere[i][0], command) && !strcmp(flags_elsewhere[i][1], name))
            return ah_usage(command, "unknown option '%s' (%s)", word, flags_elsewhere[i][2]);
    const struct ah_setting_row *setting = ah_setting_find(name);
    if (!strcmp(command, "run") && setting && setting < ah_setting_rows + AH_SETTINGS)
        return ah_usage(command, "unknown option '%s' (it is launch's: accelhost launch --%s%s%s script.lua)", word,
                        setting->name, setting->value ? " " : "", setting->value ? setting->value : "");
    const char **known = calloc((size_t)count + ALWAYS + 1, sizeof *known);
    int known_count = 0;
    for (; known && known_count < ALWAYS; known_count++)
        known[known_count] = always[known_count];
    for (int i = 0; known && i < count; i++)
        if (!strchr(flags[i].name, '*'))
            known[known_count++] = flags[i].name;
    const char *near = known ? ah_nearest(name, known) : NULL;
    free(known);
    return ah_usage(command, near ? "unknown option '%s' (did you mean '%s'?)" : "unknown option '%s'", word, near);
}

static int flags_set(const char *command, const struct ah_flag *flag, const char *value, void *options)
{
    void *field = (char *)options + flag->field;
    switch (flag->kind) {
    case AH_FLAG_SWITCH:
        if (value)
            return ah_usage(command, "%s: expected no value, got '%s'", flag->name, value);
        *(bool *)field = true;
        return 0;
    case AH_FLAG_ON_OFF:
        if (strcmp(value, "on") && strcmp(value, "off"))
            return ah_usage(command, "%s expects on or off, got '%s'", flag->name, value);
        *(bool *)field = !strcmp(value, "off");
        return 0;
    case AH_FLAG_TEXT:
    case AH_FLAG_YES:
        *(const char **)field = value ? value : "true";
        return 0;
    default:
        if (ah_value_read(&flag->rule, flag->name, value, field) < 0)
            return ah_usage(command, "%s", ah_error_text());
        return 0;
    }
}

static bool takes_value(const struct ah_flag *flag)
{
    return flag->kind != AH_FLAG_SWITCH && flag->kind != AH_FLAG_YES;
}

/* Words behind which a script's own follow. */
static bool is_script(const char *word)
{
    return !strcmp(word, "-e") || !strcmp(word, "-m") || !strcmp(word, "--module") || !strcmp(word, "-i");
}

int ah_flags_read(const char *command, const struct ah_flag *flags, int count, void (*help)(void), int argc,
                  char **argv, void *options)
{
    int i = 0;
    for (; i < argc && argv[i][0] == '-' && argv[i][1] && !is_script(argv[i]); i++) {
        char name[NAME];
        const char *word = argv[i], *value = strchr(word, '=');
        if (!strcmp(word, "--"))
            return i + 1;
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            help();
            return -1;
        }
        if (!strcmp(word, "--version")) {
            puts("accelhost " AH_VERSION);
            return -1;
        }
        flags_spell(word, value ? (size_t)(value - word) : strlen(word), name);
        const struct ah_flag *flag = flags_find(flags, count, name);
        if (!flag)
            return -1 - flags_unknown(command, flags, count, word, name);
        if (flag->kind == AH_FLAG_REFUSED)
            return -1 - ah_usage(command, "%s: %s", name, flag->help);
        if (value)
            value++;
        else if (takes_value(flag) && i + 1 < argc)
            value = argv[++i];
        else if (takes_value(flag))
            return -1 - ah_usage(command, "%s expects a value", flag->name);
        if (flags_set(command, flag, value, options))
            return -1 - 2;
    }
    return i;
}

void ah_flags_print_line(const char *name, const char *value, const char *help)
{
    char text[NAME];
    snprintf(text, sizeof text, "%s%s%s", name, value ? " " : "", value ? value : "");
    ah_help_option(text, help);
}

void ah_flags_print(const struct ah_flag *flags, int count)
{
    for (int i = 0; i < count; i++)
        if (flags[i].help && flags[i].kind != AH_FLAG_REFUSED)
            ah_flags_print_line(flags[i].name, flags[i].value, flags[i].help);
    ah_flags_print_line("--help", NULL, "this text");
}
