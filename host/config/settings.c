/* One table, searched by name; each value is owned here. Invariant: values are set in the order of enum ah_origin, so
 * that later ones override. */
#include "config/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/nearest.h"

const struct ah_setting_row ah_setting_rows[] = {
#define SETTING(id, family, ...) {.name = #id, .group = AH_GROUP_##family, __VA_ARGS__},
#define REFUSED(id, ...) {.name = #id, __VA_ARGS__},
#include "config/settings.def"
#undef SETTING
#undef REFUSED
    {.name = NULL},
};
enum { ROWS = sizeof ah_setting_rows / sizeof *ah_setting_rows - 1, NAME = 64 };

static int settings_replace(char **place, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy)
        return ah_fail(AH_ENOMEM, "out of memory");
    free(*place);
    *place = copy;
    return 0;
}

static void settings_clear(struct ah_setting_value *value)
{
    free(value->text);
    free(value->where);
    free(value->under);
    free(value->under_where);
    *value = (struct ah_setting_value){0};
}

int ah_settings_unset(struct ah_settings *settings, enum ah_setting setting)
{
    const struct ah_setting_row *row = &ah_setting_rows[setting];
    struct ah_setting_value *value = &settings->value[setting];
    settings_clear(value);
    if (!row->fallback)
        return 0;
    AH_TRY(settings_replace(&value->text, row->fallback));
    return ah_value_read(&row->rule, row->name, row->fallback, &value->number);
}

int ah_settings_open(struct ah_settings *settings)
{
    *settings = (struct ah_settings){0};
    for (int i = 0; i < AH_SETTINGS; i++) {
        int status = ah_settings_unset(settings, i);
        if (status < 0) {
            ah_settings_close(settings);
            return status;
        }
    }
    return 0;
}

void ah_settings_close(struct ah_settings *settings)
{
    for (int i = 0; i < AH_SETTINGS; i++)
        settings_clear(&settings->value[i]);
    free(settings->file);
    free(settings->idle);
    *settings = (struct ah_settings){0};
}

static bool is_named(const struct ah_setting_row *row, const char *name)
{
    size_t length = strlen(row->name);
    if (row->name[length - 1] == '*')
        return !strncmp(row->name, name, length - 1);
    return !strcmp(row->name, name) || (row->aliases && ah_value_place(row->aliases, name) >= 0);
}

const struct ah_setting_row *ah_setting_find(const char *name)
{
    char spelt[NAME];
    const char *begin = name[0] == '-' && name[1] == '-' ? name + 2 : name;
    snprintf(spelt, sizeof spelt, "%s", begin);
    for (char *c = spelt + (spelt[0] == '-'); *c; c++)
        if (*c == '-')
            *c = '_';
    for (int i = 0; i < ROWS; i++)
        if (is_named(&ah_setting_rows[i], spelt))
            return &ah_setting_rows[i];
    return NULL;
}

const char *ah_setting_nearest(const char *name)
{
    const char *known[ROWS + 1] = {NULL};
    int count = 0;
    for (int i = 0; i < ROWS; i++)
        if (!strchr(ah_setting_rows[i].name, '*'))
            known[count++] = ah_setting_rows[i].name;
    return ah_nearest(name, known);
}

/* Check a text against a row's accepted (`only`) and refused (`never`) values; spellings of a switch are equal. */
static int check_words(const struct ah_setting_row *row, const char *what, const char *text)
{
    double number;
    bool is_switch = row->rule.kind == AH_VALUE_SWITCH;
    if (is_switch && ah_value_read(&row->rule, what, text, &number) < 0)
        return AH_EINVAL;
    const char *word = is_switch ? (number != 0 ? "true" : "false") : text;
    bool refused = row->only ? ah_value_place(row->only, word) < 0 : row >= ah_setting_rows + AH_SETTINGS;
    if (refused || (row->never && ah_value_place(row->never, word) >= 0))
        return ah_fail(AH_EINVAL, is_switch ? "%s: %s" : "%s: %s (got '%s')", what, row->reason, text);
    return 0;
}

/* Keep the value that the new one overrides, if it differs. */
static int keep_under(struct ah_setting_value *value, const struct ah_setting_row *row, const char *text,
                      double number)
{
    enum ah_value_kind kind = row->rule.kind;
    bool is_text = kind == AH_VALUE_TEXT || kind == AH_VALUE_STREAMS || kind == AH_VALUE_SHARES;
    bool same = is_text ? !strcmp(value->text, text) : value->number == number;
    AH_TRY(settings_replace(&value->under, same ? NULL : value->text));
    return settings_replace(&value->under_where, same ? NULL : value->where);
}

/* "train.yaml:3: rdzv_backend" ends with the key. */
static int add_idle(struct ah_settings *settings, const char *what)
{
    char *list, *before = settings->idle;
    const char *blank = strrchr(what, ' ');
    if (asprintf(&list, "%s%s%s", before ? before : "", before ? ", " : "", blank ? blank + 1 : what) < 0)
        return ah_fail(AH_ENOMEM, "out of memory");
    free(before);
    settings->idle = list;
    return 0;
}

int ah_settings_set(struct ah_settings *settings, const struct ah_setting_row *row, const char *text,
                    enum ah_origin origin, const char *what, const char *where)
{
    double number;
    AH_TRY(check_words(row, what, text));
    if (row->only && origin == AH_FROM_FILE)
        AH_TRY(add_idle(settings, what));
    if (row >= ah_setting_rows + AH_SETTINGS)
        return 0;
    AH_TRY(ah_value_read(&row->rule, what, text, &number));
    struct ah_setting_value *value = &settings->value[row - ah_setting_rows];
    if (value->origin == AH_FROM_FILE && origin == AH_FROM_FILE)
        return ah_fail(AH_EINVAL, "%s: already set in %s", what, value->where);
    if (value->origin != AH_FROM_DEFAULT)
        AH_TRY(keep_under(value, row, text, number));
    AH_TRY(settings_replace(&value->text, text));
    AH_TRY(settings_replace(&value->where, where));
    value->number = number;
    value->origin = origin;
    return 0;
}

/* Read a variable. Another program's one may have a value without meaning here (OMP_NUM_THREADS=4,2). */
static int read_variable(struct ah_settings *settings, const struct ah_setting_row *row, const char *name,
                         enum ah_origin origin)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return 0;
    int status = ah_settings_set(settings, row, text, origin, name, name);
    return status == AH_EINVAL && strncmp(name, "ACCEL", 5) ? 0 : status;
}

int ah_settings_read_variables(struct ah_settings *settings)
{
    for (int i = 0; i < ROWS; i++) {
        const struct ah_setting_row *row = &ah_setting_rows[i];
        for (const char *at = row->others ? row->others : ""; *at;) {
            char name[NAME];
            size_t bytes = strcspn(at, " ");
            snprintf(name, sizeof name, "%.*s", (int)bytes, at);
            AH_TRY(read_variable(settings, row, name, AH_FROM_OTHER_VARIABLE));
            at += bytes + (at[bytes] == ' ');
        }
        if (row->variable)
            AH_TRY(read_variable(settings, row, row->variable, AH_FROM_VARIABLE));
    }
    return 0;
}

void ah_settings_write(const struct ah_settings *settings, enum ah_setting setting, char *text, size_t room)
{
    const struct ah_setting_value *value = &settings->value[setting];
    text[0] = 0;
    if (value->text)
        ah_value_write(&ah_setting_rows[setting].rule, value->text, value->number, text, room);
}
