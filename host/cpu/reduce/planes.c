/* Loops over planes for each floating dtype: float32, float64 and bfloat16 in vectors from memory, float16 by way of
 * chunks in float32. */
#include "cpu/reduce/planes.h"

#include "base/numeric/half.h"
#include "cpu/loop/iterate.h"
#include "cpu/loop/lanes.h"

enum { CHUNK = 2048 };

#define AS_IT_IS(x) (x)
#define IN_PLACE(room, at, count) (at)
#define NOTHING(to, y, count)

#define PLANE(name) name##_f32
#define REAL float
#define LANES ah_lanes_f32
#define SPREAD ah_spread_f32
#define REALS(p) (*(const ah_lanes_at_f32 *)(p))
#define ITEM float
#define STORED float
#define READ AS_IT_IS
#define WRITE AS_IT_IS
#define WIDE(p) (*(const ah_lanes_at_f32 *)(p))
#define NARROW(p, v) (*(ah_lanes_at_f32 *)(p) = (v))
#define ROOM(room)
#define OPEN IN_PLACE
#define TARGET IN_PLACE
#define CLOSE NOTHING
#include "cpu/reduce/planes_loops.h"

#define PLANE(name) name##_f64
#define REAL double
#define LANES ah_lanes_f64
#define SPREAD ah_spread_f64
#define REALS(p) (*(const ah_lanes_at_f64 *)(p))
#define ITEM double
#define STORED double
#define READ AS_IT_IS
#define WRITE AS_IT_IS
#define WIDE(p) (*(const ah_lanes_at_f64 *)(p))
#define NARROW(p, v) (*(ah_lanes_at_f64 *)(p) = (v))
#define ROOM(room)
#define OPEN IN_PLACE
#define TARGET IN_PLACE
#define CLOSE NOTHING
#include "cpu/reduce/planes_loops.h"

#define PLANE(name) name##_bf16
#define REAL float
#define LANES ah_lanes_f32
#define SPREAD ah_spread_f32
#define REALS(p) (*(const ah_lanes_at_f32 *)(p))
#define ITEM uint16_t
#define STORED uint16_t
#define READ ah_bf16_to_f32
#define WRITE ah_f32_to_bf16
#define WIDE ah_wide_bf16
#define NARROW ah_narrow_bf16
#define ROOM(room)
#define OPEN IN_PLACE
#define TARGET IN_PLACE
#define CLOSE NOTHING
#include "cpu/reduce/planes_loops.h"

static inline const float *plane_open_f16(float *room, const uint16_t *from, int64_t count)
{
    ah_cast(count, room, AH_F32, 1, from, AH_F16, 1);
    return room;
}

#define PLANE(name) name##_f16
#define REAL float
#define LANES ah_lanes_f32
#define SPREAD ah_spread_f32
#define REALS(p) (*(const ah_lanes_at_f32 *)(p))
#define ITEM float
#define STORED uint16_t
#define READ AS_IT_IS
#define WRITE AS_IT_IS
#define WIDE(p) (*(const ah_lanes_at_f32 *)(p))
#define NARROW(p, v) (*(ah_lanes_at_f32 *)(p) = (v))
#define ROOM(room) float room[CHUNK]
#define OPEN plane_open_f16
#define TARGET(room, to, count) (room)
#define CLOSE(to, y, count) ah_cast((count), (to), AH_F16, 1, (y), AH_F32, 1)
#include "cpu/reduce/planes_loops.h"

const struct ah_plane_loops *ah_plane_loops(enum ah_dtype dtype)
{
    return dtype == AH_F64    ? &plane_loops_f64
           : dtype == AH_BF16 ? &plane_loops_bf16
           : dtype == AH_F16  ? &plane_loops_f16
                              : &plane_loops_f32;
}
