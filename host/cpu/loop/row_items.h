/* Rows of items of any float dtype for loops of one real type (cpu/loop/for_reals.h), converted one at a time. */

static const enum ah_dtype SUFFIX(ah_row_dtype) = sizeof(REAL) == sizeof(float) ? AH_F32 : AH_F64;

/* A row of items from `at` on, converted into `room` unless they are of this type. */
static inline const REAL *SUFFIX(ah_row_in)(const struct ah_items *items, int64_t at, int64_t n, REAL *room)
{
    const char *data = items->data;
    if (items->dtype == SUFFIX(ah_row_dtype))
        return (const REAL *)items->data + at;
    ah_cast(n, room, SUFFIX(ah_row_dtype), 1, data + (size_t)at * ah_dtype_size(items->dtype), items->dtype, 1);
    return room;
}

/* Where to write a row of results: `room`, which ah_row_out then converts, unless they are of this type. */
static inline REAL *SUFFIX(ah_row_room)(const struct ah_items *items, int64_t at, REAL *room)
{
    return items->dtype == SUFFIX(ah_row_dtype) ? (REAL *)items->data + at : room;
}

static inline void SUFFIX(ah_row_out)(const struct ah_items *items, int64_t at, int64_t n, const REAL *row)
{
    char *to = (char *)items->data + (size_t)at * ah_dtype_size(items->dtype);
    if ((const char *)row != to)
        ah_cast(n, to, items->dtype, 1, row, SUFFIX(ah_row_dtype), 1);
}
