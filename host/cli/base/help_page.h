/* The text of --help, wrapped at the width of the reader's terminal. */
#pragma once

/* Return the columns that help may use: those of stdout's terminal, else of COLUMNS, else 80; between 40 and 100. */
int ah_help_width(void);

/* Print a text on stdout. Lines that begin without a blank are joined to paragraphs; an indented line that is too long
 * continues below its last column, or indented. Ends with a line break. */
void ah_help_print(const char *text);

/* Print a name and its description in a separate column; of options the column is farther right. */
void ah_help_row(const char *name, const char *text);
void ah_help_option(const char *name, const char *text);
