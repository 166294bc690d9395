/* One pass over the words; each is looked up by its name in the one spelling that counts, with '_'. */
#include "cli/flags.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/version.h"
#include "cli/command.h"

enum { NAME = 64, MOST_FLAGS = 32 };

static void spell(const char *word, size_t length, char name[NAME])
{
    snprintf(name, NAME, "%.*s", (int)(length < NAME ? length : NAME - 1), word);
    for (char *c = name + strspn(name, "-"); *c; c++)
        if (*c == '-')
            *c = '_';
}

static const struct ah_flag *find(const struct ah_flag *flags, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        char known[NAME];
        spell(flags[i].name, strlen(flags[i].name), known);
        if (!strcmp(known, name))
            return &flags[i];
    }
    return NULL;
}

/* Options of the launchers that people come from, and what there is instead. */
static const char *const elsewhere[][2] = {
    {"--nproc_per_node", "here: --num_processes"},
    {"-n", "here: --num_processes"},
    {"-np", "here: --num_processes"},
    {"--cpu", "leave it out: tensors lie on the CPU unless the script says otherwise"},
    {"--multi_gpu", "leave it out: the script says where its tensors lie"},
    {"--mixed_precision", "the script says it: Accelerator{mixed_precision = ...}"},
    {"--gradient_accumulation_steps", "the script says it: Accelerator{gradient_accumulation_steps = ...}"},
    {"--num_machines", "leave it out: the processes run on one machine"},
    {"--nnodes", "leave it out: the processes run on one machine"},
    {"--machine_rank", "leave it out: the processes run on one machine"},
    {"--main_process_ip", "leave it out: the processes run on one machine"},
    {"--main_process_port", "leave it out: the processes need no port"},
    {"--config_file", "there are no configuration files: give the options to launch"},
};

static int unknown(const char *command, const struct ah_flag *flags, int count, const char *word, const char *name)
{
    const char *known[MOST_FLAGS + 4] = {"--help", "--version", "-e"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (!strcmp(elsewhere[i][0], name))
            return ah_usage(command, "unknown option '%s' (%s)", word, elsewhere[i][1]);
    for (int i = 0; i < count && i < MOST_FLAGS; i++)
        known[i + 3] = flags[i].name;
    const char *near = ah_nearest(name, known);
    return ah_usage(command, near ? "unknown option '%s' (did you mean '%s'?)" : "unknown option '%s'", word, near);
}

static bool read_bytes(const char *text, double *number)
{
    static const char units[] = "KMGT";
    char *end;
    *number = strtod(text, &end);
    if (end == text)
        return false;
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    if (unit && *unit) {
        *number *= ldexp(1, 10 * (int)(unit - units + 1));
        end++;
    }
    if (*end && (*end & ~0x20) == 'B')
        end++;
    return !*end;
}

static int set_number(const char *command, const struct ah_flag *flag, const char *value, void *options)
{
    double number;
    char *end;
    bool read;
    if (flag->kind == AH_FLAG_BYTES) {
        read = read_bytes(value, &number);
    } else {
        number = strtod(value, &end);
        read = end != value && !*end;
    }
    if (!read || !(number >= flag->least && number <= flag->most) ||
        (flag->kind == AH_FLAG_WHOLE && number != floor(number))) {
        if (flag->kind == AH_FLAG_BYTES)
            return ah_usage(command, "%s expects a size such as 500M or 2G, of at least %gM, got '%s'", flag->name,
                            ldexp(flag->least, -20), value);
        return ah_usage(command, "%s expects %s in %g..%g, got '%s'", flag->name,
                        flag->kind == AH_FLAG_WHOLE ? "a whole number" : "a number", flag->least, flag->most, value);
    }
    *(double *)((char *)options + flag->field) = number;
    return 0;
}

static int set(const char *command, const struct ah_flag *flag, const char *value, void *options)
{
    bool *on = (bool *)((char *)options + flag->field);
    switch (flag->kind) {
    case AH_FLAG_SWITCH:
        if (value)
            return ah_usage(command, "%s takes no value, got '%s'", flag->name, value);
        *on = true;
        return 0;
    case AH_FLAG_ON_OFF:
        if (strcmp(value, "on") && strcmp(value, "off"))
            return ah_usage(command, "%s expects on or off, got '%s'", flag->name, value);
        *on = !strcmp(value, "off");
        return 0;
    default:
        return set_number(command, flag, value, options);
    }
}

int ah_flags_read(const char *command, const struct ah_flag *flags, int count, void (*help)(void), int argc,
                  char **argv, void *options)
{
    int i = 0;
    for (; i < argc && argv[i][0] == '-' && argv[i][1] && strcmp(argv[i], "-e"); i++) {
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
        spell(word, value ? (size_t)(value - word) : strlen(word), name);
        const struct ah_flag *flag = find(flags, count, name);
        if (!flag)
            return -1 - unknown(command, flags, count, word, name);
        if (value)
            value++;
        else if (flag->kind != AH_FLAG_SWITCH && i + 1 < argc)
            value = argv[++i];
        else if (flag->kind != AH_FLAG_SWITCH)
            return -1 - ah_usage(command, "%s expects a value", flag->name);
        if (set(command, flag, value, options))
            return -1 - 2;
    }
    return i;
}

void ah_flags_print(const struct ah_flag *flags, int count)
{
    for (int i = 0; i < count; i++) {
        int width = 31 - (int)strlen(flags[i].name);
        printf("  %s %-*s  %s\n", flags[i].name, width, flags[i].value ? flags[i].value : "", flags[i].help);
    }
    puts("  --help                            this text");
}
