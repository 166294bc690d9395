/* The order of a batch in memory, and its arrays. */
#include "cpu/reduce/norm_storage.h"

#include "cpu/loop/layout.h"
#include "tensor/tensor.h"

struct ah_batch ah_batch_of(const struct ah_tensor *t)
{
    struct ah_batch b = {t->size[0], t->size[1], 1};
    for (int d = 2; d < t->ndim; d++)
        b.pixels *= t->size[d];
    return b;
}

struct ah_norm_storage ah_norm_storage(const struct ah_tensor *x, const struct ah_tensor *gradient)
{
    enum ah_dtype dtype = ah_compute_dtype(x->dtype);
    const struct ah_tensor *g = gradient ? gradient : x;
    bool last = dtype == AH_F32 && x->storage->channels_last && g->storage->channels_last;
    bool rows = last || (dtype == AH_F32 && ah_batch_of(x).pixels == 1);
    bool as_is = x->dtype == g->dtype && (x->dtype == AH_BF16 || (x->dtype == AH_F16 && !rows));
    return (struct ah_norm_storage){last, rows, as_is ? x->dtype : dtype};
}

const void *ah_norm_open(struct ah_arrays *a, struct ah_tensor *t, const struct ah_norm_storage *s)
{
    bool half = s->dtype != ah_compute_dtype(s->dtype);
    return s->last ? ah_array_nhwc(a, t, half) : half ? ah_array_as_is(a, t) : ah_array_in(a, t);
}

void *ah_norm_out_open(struct ah_arrays *a, struct ah_tensor *out, const struct ah_norm_storage *s)
{
    return s->dtype == out->dtype ? ah_tensor_data(out) : ah_array_out(a, out);
}
