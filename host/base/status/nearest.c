/* Edit distance with three rows, over lists of some hundred short words: an error has time for that. */
#include "base/status/nearest.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { MOST = 64 }; /* letters of a word; longer ones are far from all */

/* Return the edit distance of the first i letters of `a` and the first j of `b`, from the rows of i - 1 and i - 2. */
static int nearest_cost(const char *a, const char *b, size_t i, size_t j, int rows[3][MOST])
{
    const int *one = rows[(i + 2) % 3], *two = rows[(i + 1) % 3];
    int best = one[j - 1] + (a[i - 1] != b[j - 1]);
    if (one[j] + 1 < best)
        best = one[j] + 1;
    if (rows[i % 3][j - 1] + 1 < best)
        best = rows[i % 3][j - 1] + 1;
    if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two[j - 2] + 1 < best)
        best = two[j - 2] + 1;
    return best;
}

/* Edit distance, in which two letters that have changed places are one mistake. */
static int nearest_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int rows[3][MOST];
    if (n >= MOST || m >= MOST)
        return 99;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        rows[i % 3][0] = (int)i;
        for (size_t j = 1; j <= m; j++)
            rows[i % 3][j] = nearest_cost(a, b, i, j, rows);
    }
    return rows[n % 3][m];
}

/* The shortest of the list that `word` abbreviates; a word of one or two letters is too short for that. */
static const char *nearest_completed(const char *word, const char *const *list)
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
    if (strlen(word) < 2)
        return NULL; /* every name of one letter is near */
    for (const char *const *known = list; *known; known++) {
        int d = strcasecmp(word, *known) ? nearest_distance(word, *known) : 0; /* "Adamw" is AdamW, not Adam */
        /* The list may be made from a Lua table, in any order. */
        if (d < best || (nearest && d == best && strcmp(*known, nearest) < 0)) {
            best = d;
            nearest = *known;
        }
    }
    return nearest ? nearest : nearest_completed(word, list);
}
