/* Assigns source places from the numbers of characters consumed. */
#include "text/places.h"

void ah_places_assign(struct ah_chars *text, const struct ah_chars *source)
{
    size_t next = 0;
    for (size_t i = 0; i < text->count; i++) {
        struct ah_char *at = &text->at[i];
        size_t takes = (size_t)at->from, place = takes ? next : next - 1;
        next += takes;
        at->from = next ? source->at[place].from : 0;
        at->to = next ? source->at[place].to : 0;
    }
}
