/* Division of draws among threads: parts begin at units, and their sizes follow from the number of threads alone. */
#include "cpu/loop/draws.h"

#include <stdatomic.h>

#include "base/process/thread_pool.h"
#include "base/process/threads.h"
#include "tensor/rng.h"

enum { MOST_PARTS = 8, LEAST_DRAWS = 1 << 16 };

/* The time to pass over a draw is 0.07 ns, to compare one with a probability and to multiply by the result 0.26 (one
 * thread of a Zen 5): a part has this share of the one before it. */
static const double LATER_SHARE = 0.7;

struct drawing {
    ah_draws_before_fn before;
    ah_draw_fn draw;
    const void *context;
    int64_t first[MOST_PARTS + 1]; /* units */
    struct ah_generator start;
    struct part {
        struct ah_generator end;
        atomic_bool done;
    } part[MOST_PARTS];
};

/* The first unit with at least `draws` before it. */
static int64_t drawing_unit(const struct drawing *d, int64_t units, double draws)
{
    int64_t low = 0, high = units;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if ((double)d->before(d->context, middle) < draws)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void drawing_part(void *context, int part)
{
    struct drawing *d = context;
    struct ah_generator g; /* its own cache lines */
    if (part > 0 && atomic_load(&d->part[part - 1].done)) { /* by this thread, where there is no other */
        g = d->part[part - 1].end;
    } else {
        g = d->start;
        ah_generator_skip(&g, d->before(d->context, d->first[part]));
    }
    d->draw(d->context, &g, d->first[part], d->first[part + 1]);
    d->part[part].end = g;
    atomic_store(&d->part[part].done, true);
}

void ah_draw_units(int64_t units, ah_draws_before_fn before, ah_draw_fn draw, const void *context)
{
    struct ah_generator *g = ah_default_generator();
    int64_t draws = before(context, units);
    int parts = ah_num_threads() < MOST_PARTS ? ah_num_threads() : MOST_PARTS;
    if (parts == 1 || draws < LEAST_DRAWS || ah_region_is_divided()) {
        ah_generator_skip(g, before(context, 0));
        draw(context, g, 0, units);
        return;
    }
    struct drawing d = {.before = before, .draw = draw, .context = context, .start = *g};
    double sum = 0, share = 1, whole = 0;
    for (int i = 0; i < parts; i++, share *= LATER_SHARE)
        whole += share;
    share = 1;
    for (int i = 1; i < parts; i++, share *= LATER_SHARE) {
        sum += share;
        d.first[i] = drawing_unit(&d, units, (double)draws * sum / whole);
    }
    d.first[parts] = units;
    ah_pool_run(parts, drawing_part, &d);
    *g = d.part[parts - 1].end;
}
