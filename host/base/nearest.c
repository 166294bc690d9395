/* Edit distance with one row, over lists of some hundred short words: an error has time for that. */
#include "base/nearest.h"

#include <stdint.h>
#include <string.h>

/* Edit distance; far away for long words. */
static int distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[64];
    if (n >= 64 || m >= 64)
        return 99;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

/* The shortest of the list that `word` abbreviates; a word of one or two letters says too little. */
static const char *completed(const char *word, const char *const *list)
{
    const char *shortest = NULL;
    size_t length = strlen(word);
    for (; length > 2 && *list; list++) {
        if (strncmp(word, *list, length))
            continue;
        size_t least = shortest ? strlen(shortest) : SIZE_MAX, now = strlen(*list);
        if (now < least || (now == least && strcmp(*list, shortest) < 0))
            shortest = *list;
    }
    return shortest;
}

const char *ah_nearest(const char *word, const char *const *list)
{
    const char *nearest = NULL;
    int best = strlen(word) > 3 ? 3 : 2;
    for (const char *const *known = list; *known; known++) {
        int d = distance(word, *known);
        /* The list may come from a table, in any order. */
        if (d < best || (nearest && d == best && strcmp(*known, nearest) < 0)) {
            best = d;
            nearest = *known;
        }
    }
    return nearest ? nearest : completed(word, list);
}
