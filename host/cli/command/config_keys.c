/* accelhost config keys: the table of settings as Markdown, for a terminal and for the documentation. */
#include <stdio.h>
#include <string.h>

#include "cli/command/config_questions.h"

/* "`nnodes`, `-n`" */
static void print_words(const char *words)
{
    for (const char *at = words; *at;) {
        size_t bytes = strcspn(at, " ");
        printf("%s`%.*s`", at == words ? "" : ", ", (int)bytes, at);
        at += bytes + (at[bytes] == ' ');
    }
}

static void print_setting(const struct ah_setting_row *row)
{
    printf("| `%s`", row->name);
    if (row->aliases) {
        printf(", ");
        print_words(row->aliases);
    }
    printf(" | ");
    if (row->variable)
        print_words(row->variable);
    if (row->others) {
        printf("%s", row->variable ? ", " : "");
        print_words(row->others);
    }
    const char *fallback = row->fallback_text ? row->fallback_text : row->fallback;
    printf(" | %s | ", fallback ? fallback : "");
    /* A | would end the cell. */
    for (const char *c = row->help; *c; c++)
        printf(*c == '|' ? "\\%c" : "%c", *c);
    if (row->only)
        printf("; only `%.*s`: %s", (int)strcspn(row->only, " "), row->only, row->reason);
    printf("%s |\n", row->not_in_file ? " (no key)" : "");
}

void ah_config_print_keys(void)
{
    puts("| flag and key | variables | default | description |\n| --- | --- | --- | --- |");
    for (int i = 0; i < AH_SETTINGS; i++)
        print_setting(&ah_setting_rows[i]);
    puts("\nRefused, but for values that have no effect here:\n\n"
         "| flag or key | allowed | reason |\n| --- | --- | --- |");
    for (const struct ah_setting_row *row = ah_setting_rows + AH_SETTINGS; row->name; row++) {
        printf("| `%s` | ", row->name);
        if (row->nested)
            printf("`{}`");
        else
            print_words(row->only ? row->only : "");
        printf(" | %s |\n", row->reason);
    }
}
