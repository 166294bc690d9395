/* The known word that a misspelt one may have meant. */
#pragma once

/* The entry of the NULL-ended list that is `word` but for the case of letters, else the nearest one by edit distance
 * (up to 2, up to 1 for words of three letters), else the shortest entry that begins with `word`; the first by its
 * bytes among equals; NULL when there is none. */
const char *ah_nearest(const char *word, const char *const *list);
