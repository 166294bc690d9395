/* One function for each kind; numbers are read by strtod, whole, so that nothing behind them is passed over. */
#include "config/value.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/process/threads.h"

int ah_value_place(const char *words, const char *word)
{
    size_t length = strlen(word);
    int place = 0;
    for (const char *at = words; *at; place++) {
        size_t bytes = strcspn(at, " ");
        if (bytes == length && !strncasecmp(at, word, length))
            return place;
        at += bytes + (at[bytes] == ' ');
    }
    return -1;
}

static bool read_number(const char *text, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && !*end;
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

static bool read_switch(const char *text, double *number)
{
    int place = ah_value_place("false true no yes off on 0 1", text);
    *number = place & 1;
    return place >= 0;
}

/* 3, or 0:3,1:2 */
static bool read_streams(const char *text)
{
    if (text[0] >= '0' && text[0] <= '3' && !text[1])
        return true;
    while (*text) {
        char *end;
        long rank = strtol(text, &end, 10);
        if (end == text || rank < 0 || *end != ':' || end[1] < '0' || end[1] > '3' || (end[2] && end[2] != ','))
            return false;
        text = end + 2 + (end[2] == ',' && end[3]);
        if (*text == ',')
            return false;
    }
    return true;
}

/* 2:1:1; a number has at most 6 digits. */
static bool read_shares(const char *text, double *number)
{
    for (*number = 0;; text++) {
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 6 || strspn(text, "0") == digits)
            return false;
        *number += 1;
        text += digits;
        if (*text != ':')
            return !*text;
    }
}

int ah_value_streams(const char *text, int rank)
{
    if (text[0] && !text[1])
        return text[0] - '0';
    while (*text) {
        char *end;
        long named = strtol(text, &end, 10);
        if (named == rank)
            return end[1] - '0';
        text = end + 2 + (end[2] == ',');
    }
    return 0;
}

static int fail_number(const struct ah_value_rule *rule, const char *what, const char *text)
{
    if (rule->kind == AH_VALUE_BYTES)
        return ah_fail(AH_EINVAL, "%s expects a size such as 500M or 2G, of at least %gM, got '%s'", what,
                       ldexp(rule->least, -20), text);
    const char *expected = rule->kind == AH_VALUE_NUMBER ? "a number" : "a whole number";
    return ah_fail(AH_EINVAL, "%s expects %s in %g..%g%s, got '%s'", what, expected, rule->least, rule->most,
                   rule->kind == AH_VALUE_COUNT ? " or auto" : "", text);
}

/* One end of MIN:MAX, or both. */
static bool read_bound(const struct ah_value_rule *rule, const char *text, size_t bytes, double *number)
{
    char copy[16];
    if (bytes >= sizeof copy)
        return false;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return read_number(copy, number) && *number >= rule->least && *number <= rule->most && *number == floor(*number);
}

static int read_machines(const struct ah_value_rule *rule, const char *what, const char *text, double *number)
{
    const char *colon = strchr(text, ':'), *most = colon ? colon + 1 : text;
    double least = rule->least;
    bool read = !colon || read_bound(rule, text, (size_t)(colon - text), &least);
    if (!read || !read_bound(rule, most, strlen(most), number))
        return fail_number(rule, what, text);
    if (least > *number)
        return ah_fail(AH_EINVAL, "%s expects MIN:MAX, got '%s'", what, text);
    return 0;
}

static int read_numeric(const struct ah_value_rule *rule, const char *what, const char *text, double *number)
{
    bool read;
    if (rule->kind == AH_VALUE_COUNT && !strcasecmp(text, "auto")) {
        *number = fmin(ah_cpu_count(), rule->most);
        return 0;
    }
    if (rule->kind == AH_VALUE_COUNT && rule->words && ah_value_place(rule->words, text) >= 0) {
        *number = rule->least;
        return 0;
    }
    if (rule->kind == AH_VALUE_MACHINES)
        return read_machines(rule, what, text, number);
    read = rule->kind == AH_VALUE_BYTES ? read_bytes(text, number) : read_number(text, number);
    if (!read || !(*number >= rule->least && *number <= rule->most))
        return fail_number(rule, what, text);
    if ((rule->kind == AH_VALUE_WHOLE || rule->kind == AH_VALUE_COUNT) && *number != floor(*number))
        return fail_number(rule, what, text);
    return 0;
}

/* "no, bf16 or fp16" */
static int fail_choice(const struct ah_value_rule *rule, const char *what, const char *text)
{
    char list[256];
    size_t at = 0;
    for (const char *word = rule->words; *word && at + 1 < sizeof list;) {
        size_t bytes = strcspn(word, " ");
        const char *next = word + bytes + (word[bytes] == ' ');
        const char *between = word == rule->words ? "" : *next ? ", " : " or ";
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", between, (int)bytes, word);
        word = next;
    }
    return ah_fail(AH_EINVAL, "%s expects %s, got '%s'", what, list, text);
}

int ah_value_read(const struct ah_value_rule *rule, const char *what, const char *text, double *number)
{
    *number = 0;
    switch (rule->kind) {
    case AH_VALUE_TEXT:
        return *text ? 0 : ah_fail(AH_EINVAL, "%s expects a text, got nothing", what);
    case AH_VALUE_SWITCH:
        return read_switch(text, number) ? 0 : ah_fail(AH_EINVAL, "%s expects true or false, got '%s'", what, text);
    case AH_VALUE_CHOICE:
        *number = ah_value_place(rule->words, text);
        return *number >= 0 ? 0 : fail_choice(rule, what, text);
    case AH_VALUE_SHARES:
        return read_shares(text, number) ? 0 :
               ah_fail(AH_EINVAL, "%s expects a whole number above 0 for each rank, with colons between them as in "
                       "2:1, got '%s'", what, text);
    case AH_VALUE_STREAMS:
        return *text && read_streams(text) ? 0 :
               ah_fail(AH_EINVAL, "%s expects 0 (nothing), 1 (output), 2 (errors) or 3 (both), or that by rank as in "
                       "0:3,1:2, got '%s'", what, text);
    default:
        return read_numeric(rule, what, text, number);
    }
}

void ah_value_write(const struct ah_value_rule *rule, const char *text, double number, char *out, size_t room)
{
    if (rule->kind == AH_VALUE_SWITCH)
        snprintf(out, room, "%s", number != 0 ? "true" : "false");
    else if (rule->kind == AH_VALUE_CHOICE) {
        const char *word = rule->words;
        for (int place = (int)number; place > 0; place--)
            word += strcspn(word, " ") + 1;
        snprintf(out, room, "%.*s", (int)strcspn(word, " "), word);
    } else if (rule->kind == AH_VALUE_BYTES || rule->kind == AH_VALUE_SHARES) {
        snprintf(out, room, "%s", text);
    } else if (rule->kind == AH_VALUE_TEXT || rule->kind == AH_VALUE_STREAMS) {
        snprintf(out, room, "%s", text);
    } else {
        snprintf(out, room, "%.15g", number);
    }
}
