/* The first failure wins by a compare and exchange, and alone writes the text. Relaxed: the end of the parts orders the
 * text before ah_failure_result. */
#include "base/status/failure.h"

#include <stdio.h>

#include "base/status/status.h"

void ah_failure_note(struct ah_failure *failure, int status)
{
    int none = 0;
    if (status < 0 && atomic_compare_exchange_strong_explicit(&failure->status, &none, status, memory_order_relaxed,
                                                              memory_order_relaxed))
        snprintf(failure->text, sizeof failure->text, "%s", ah_error_text());
}

int ah_failure_result(const struct ah_failure *failure)
{
    int status = atomic_load_explicit(&failure->status, memory_order_relaxed);
    return status < 0 ? ah_fail(status, "%s", failure->text) : 0;
}
