/* The line breaks of texts in the sources are those of no terminal. */
#include "cli/base/help_page.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST = 40, MOST = 100, DEFAULT = 80, INDENT = 4 };

int ah_help_width(void)
{
    struct winsize window = {0};
    const char *variable = getenv("COLUMNS");
    int columns = variable ? (int)strtol(variable, NULL, 10) : 0;
    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) && window.ws_col > 0)
        columns = window.ws_col;
    columns = columns > 0 ? columns : DEFAULT;
    return columns < LEAST ? LEAST : columns > MOST ? MOST : columns;
}

/* Return the column at which a line that is too long continues: of its text after a name, else indented. */
static int page_hang(const char *line, size_t bytes)
{
    size_t blanks = strspn(line, " "), at = blanks;
    while (at + 1 < bytes && !(line[at] == ' ' && line[at + 1] == ' '))
        at++;
    while (at < bytes && line[at] == ' ')
        at++;
    return blanks && at + 1 < bytes && at < MOST / 2 ? (int)at : (int)blanks + INDENT;
}

/* Print a line's words from column `at` on, after `space` blanks; return the column at its end. */
static int page_words(const char *line, size_t bytes, int at, int hang, int space)
{
    const char *end = line + bytes;
    int width = ah_help_width();
    while (line < end) {
        int blanks = (int)strspn(line, " "), word = (int)strcspn(line + blanks, " \n");
        line += blanks;
        space += blanks;
        if (at > hang && at + space + word > width) {
            at = printf("\n%*s", hang, "") - 1;
            space = 0;
        }
        at += printf("%*s%.*s", space, "", word, line);
        line += word;
        space = 0;
    }
    return at;
}

void ah_help_print(const char *text)
{
    bool is_open = false; /* a paragraph may continue */
    int at = 0;
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        bool is_prose = bytes && *text != ' ';
        bool is_joined = is_open && is_prose;
        if (is_open && !is_prose) {
            putchar('\n');
            at = 0;
        }
        at = page_words(text, bytes, at, is_prose ? 0 : page_hang(text, bytes), is_joined);
        is_open = is_prose && text[bytes - 1] != ':';
        text += bytes + (text[bytes] == '\n');
        if (!is_open) {
            putchar('\n');
            at = 0;
        }
    }
    if (is_open)
        putchar('\n');
}

static void help_columns(const char *name, const char *text, int column)
{
    int at = printf("  %s", name);
    if (at > column - 2)
        at = printf("\n") - 1;
    at += printf("%*s", column - at, "");
    page_words(text, strlen(text), at, column, 0);
    putchar('\n');
}

void ah_help_row(const char *name, const char *text)
{
    enum { COLUMN = 19 };
    help_columns(name, text, COLUMN);
}

void ah_help_option(const char *name, const char *text)
{
    enum { WIDE = 90, COLUMN_OF_WIDE = 36, COLUMN = 28 };
    help_columns(name, text, ah_help_width() < WIDE ? COLUMN : COLUMN_OF_WIDE);
}
