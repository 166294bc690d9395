/* Numbers of the default generator, drawn by several threads. Each number depends on the ones before it, but passing
 * over them is cheap next to their use: a thread copies the generator and skips to its part, which is the smaller the
 * later it begins. The numbers and the generator's state afterwards are those of one thread. */
#pragma once

#include <stdint.h>

struct ah_generator;

/* The 32-bit draws before `unit`; for the number of units, all of them. */
typedef int64_t (*ah_draws_before_fn)(const void *context, int64_t unit);
/* Draw the units [begin, end) from `g`, which is at the first one, and leave it at `end`. Any thread; several at a
 * time, of different units. */
typedef void (*ah_draw_fn)(const void *context, struct ah_generator *g, int64_t begin, int64_t end);

/* Draw all units; Lua thread only. */
void ah_draw_units(int64_t units, ah_draws_before_fn before, ah_draw_fn draw, const void *context);
