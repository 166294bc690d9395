/* Autocast: within a block, floating arguments of ops are cast to another dtype, by the rules in
 * host/ops/schema/autocast.def.
 *
 * The dispatcher calls this for every call while a block is on. Casts are ops: they are recorded, so gradients have the
 * argument's dtype. Weights of linear maps stay float32 where the CPU's products round them on the way, with the same
 * results (call->rounds_weight): their gradients are float32 sums, and there is no copy. The cast of another leaf that
 * requires grad is kept until the outermost block ends, unless the block disables that or the leaf is written in
 * between. Each type of device has its own blocks and lists; a call with tensors of CUDA follows theirs. float64,
 * integers and tensors of other devices stay as they are, in-place forms cast nothing. The engine switches autocast
 * off: gradients are computed in the dtypes of their forward. Lua thread only.
 *
 * Circle: autocast, op: the dispatcher runs autocast before a call, and autocast reads the call and its op schema. */
#pragma once

#include "ops/dispatch/op.h"

enum ah_autocast_rule {
    AH_AUTOCAST_NONE,   /* not in the table */
    AH_AUTOCAST_LOWER,  /* to the block's dtype */
    AH_AUTOCAST_LINEAR, /* to the block's dtype, but a weight that the product rounds on the way stays float32 */
    AH_AUTOCAST_FLOAT,  /* to float32 */
    AH_AUTOCAST_RESULT, /* no casts: the forward sees call->float_result */
    AH_AUTOCAST_WIDEST, /* to the block's dtype, or to float32 if one of them is wider */
    AH_AUTOCAST_OWN,    /* no casts, none within either */
};

/* The types of devices that have it. */
enum ah_autocast_kind { AH_AUTOCAST_CPU, AH_AUTOCAST_CUDA, AH_AUTOCAST_KINDS };

struct ah_autocast {
    unsigned enabled;                         /* a bit for each kind */
    enum ah_dtype dtype[AH_AUTOCAST_KINDS]; /* float16 or bfloat16 */
    bool cache;
};
extern struct ah_autocast ah_autocast; /* of the innermost block; read it, but change it by the functions below */

/* Begin a block; returns the previous state, for ah_autocast_leave at its end. */
struct ah_autocast ah_autocast_enter(const struct ah_autocast *block);
void ah_autocast_leave(const struct ah_autocast *before);

/* Set it without a block, as for all that follows. */
void ah_autocast_set(const struct ah_autocast *state);

/* Forget the kept casts. */
void ah_autocast_clear(void);

/* The kind of a device, by the name of its type; AH_AUTOCAST_KINDS: it has none. */
enum ah_autocast_kind ah_autocast_kind(const char *type);

/* Set which kinds are on; returns which were. */
unsigned ah_autocast_switch(unsigned enabled);
/* Off up to the end of the block, however that is left but by a Lua error; one a block. */
#define AH_AUTOCAST_OFF() \
    unsigned ah_autocast_before __attribute__((cleanup(ah_autocast_restore), unused)) = ah_autocast_switch(0)
static inline void ah_autocast_restore(const unsigned *before)
{
    ah_autocast_switch(*before);
}

/* Run a call in the dtype of its rule: cast the arguments, and `run` with autocast off. */
int ah_autocast_run(struct ah_call *call, int (*run)(struct ah_call *call));

/* *out: a tensor of this kind of device in `dtype`, a new reference; itself where there is nothing to cast. */
int ah_autocast_tensor(struct ah_tensor **out, struct ah_tensor *tensor, enum ah_autocast_kind kind,
                       enum ah_dtype dtype);

/* Does a product cast this tensor, if need be, to the block's dtype? Then *dtype is that. */
bool ah_autocast_lowers(const struct ah_tensor *tensor, enum ah_dtype *dtype);

/* Return the kind whose rules a call follows: begin with AH_AUTOCAST_KINDS, for none, and call it for each of its
 * tensors. Enabled ones count, CUDA's before the CPU's. */
enum ah_autocast_kind ah_autocast_leading(enum ah_autocast_kind kind, const struct ah_tensor *tensor);
/* The wider of a dtype and that of a tensor that would be cast. */
enum ah_dtype ah_autocast_wider(enum ah_dtype dtype, const struct ah_tensor *tensor, enum ah_autocast_kind kind);
