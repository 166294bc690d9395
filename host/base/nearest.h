/* The known word that a misspelt one may have meant. */
#ifndef AH_BASE_NEAREST_H
#define AH_BASE_NEAREST_H

/* The entry of the NULL-ended list nearest to `word` by edit distance, NULL when none is within 2. */
const char *ah_nearest(const char *word, const char *const *list);

#endif
