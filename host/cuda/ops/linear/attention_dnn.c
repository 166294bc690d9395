/* Attention by cuDNN: a plan per shape and strides, of which the last PLANS are kept, also those that were refused.
 *
 * cuDNN compiles a plan's kernel when a shape is first met, in half a second (9.19, for an H100, 2026-11); so unless
 * configured otherwise only lengths that are multiples of STEP are computed so, of which batches of various lengths
 * have few. Unless memory for its workspace runs out, a shape is computed in one way as long as the program runs, so
 * that a forward pass that is computed again is the same to the bit.
 *
 * The gradient of the query is a sum over blocks of keys. cuDNN's kernels for Hopper add it up by atomic additions, in
 * no fixed order, and their notes do not mention it; in another form of the graph (ah_sdpa.ordered) they store the
 * gradient
 * of the scores instead, 2 bytes each, and multiply it with the keys. Where that exceeds WORKSPACE, and on Blackwell,
 * where only kernels for Ampere support that form, the program's own kernels compute the gradients. */
#include "cuda/ops/linear/attention_dnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver/memory/memory.h"
#include "cuda/driver/stream/capture.h"
#include "cuda/driver/stream/reals.h"
#include "cuda/driver/stream/times.h"
#include "cuda/ops/lib/elementwise.h"
#include "cuda/ops/linear/attention_graph.h"
#include "ops/dispatch/precision.h"

enum { PLANS = 64, LEAST = 256, STEP = 64, WIDEST = 256 };
/* Of cuDNN, the first version that is used, which writes the logarithms of sums with strides; the first that reads them
 * so; and the last whose gradients are wrong where keys are no multiple of ODD (as NVIDIA's frontend has it). */
enum { OLDEST = 91300, STRIDED_BACKWARD = 92600, LAST_WITHOUT_ODD = 91500, ODD = 128 };
#define WORKSPACE ((int64_t)1 << 30)

/* $ACCELHOST_CUDA_ATTENTION. Unset means own: no card has run these graphs so far (2026-11). */
static enum choice { OWN, AUTO, FORWARD, CUDNN, UNORDERED } attention_choice;
static const char *const attention_choices[] = {"own", "auto", "forward", "cudnn", "unordered"};

/* Plans are found by its bytes. */
struct key {
    struct ah_sdpa sdpa;
    int64_t ordinal;
};

static struct plan {
    struct key key;
    bool made, absent; /* absent: there is none */
    uint64_t used;
    struct ah_sdpa_graph graph;
    struct ah_dnn_plan chosen;
} attention_plans[PLANS];
static uint64_t attention_uses;

int ah_cuda_attention_dnn_read(void)
{
    const char *text = getenv("ACCELHOST_CUDA_ATTENTION");
    for (size_t i = 0; i < sizeof attention_choices / sizeof *attention_choices; i++)
        if (!strcmp(text && *text ? text : "own", attention_choices[i])) {
            attention_choice = (enum choice)i;
            return 0;
        }
    return ah_fail(AH_EINVAL,
                   "ACCELHOST_CUDA_ATTENTION: expected \"own\", \"auto\", \"forward\", \"cudnn\" or "
                   "\"unordered\", got \"%s\"",
                   text);
}

static const struct ah_attention_rows *attention_rows_of(const struct ah_attention_args *a, int id)
{
    const struct ah_attention_rows *const rows[AH_SDPA_ROWS] = {
        [AH_SDPA_QUERY] = &a->query,       [AH_SDPA_KEY] = &a->key,
        [AH_SDPA_VALUE] = &a->value,       [AH_SDPA_OUT] = &a->out,
        [AH_SDPA_GRAD] = &a->grad,         [AH_SDPA_GRAD_QUERY] = &a->grad_query,
        [AH_SDPA_GRAD_KEY] = &a->grad_key, [AH_SDPA_GRAD_VALUE] = &a->grad_value,
    };
    return rows[id];
}

static int attention_rows_count(const struct ah_attention_args *a)
{
    return a->grad_query.at ? AH_SDPA_ROWS : AH_SDPA_GRAD;
}

/* Rows that cuDNN reads by 16 bytes at once. */
static bool attention_rows_fit(const struct ah_attention_args *a)
{
    for (int i = 0; i < attention_rows_count(a); i++) {
        const struct ah_attention_rows *rows = attention_rows_of(a, i);
        if (!rows->wide || rows->width < 1 || rows->width > WIDEST || rows->token < 1 || rows->head < 1 ||
            (rows->batch < 1 && a->batch > 1))
            return false;
    }
    return true;
}

/* Can cuDNN's kernels compute it, and is that expected to pay? */
static bool attention_is_candidate(const struct ah_cuda_device *cuda, const struct ah_attention_args *a,
                                   enum ah_dtype dtype)
{
    bool backward = a->grad_query.at, plain = !a->mask && !a->spans && !a->keep && a->left < 0 && a->right <= 0;
    if (attention_choice == OWN || (backward && attention_choice == FORWARD) || !ah_precision()->dnn ||
        cuda->capability < 90)
        return false;
    if ((dtype != AH_F16 && dtype != AH_BF16) || !plain || a->batch < 1 || a->queries < 1 || a->keys < 1 ||
        !attention_rows_fit(a))
        return false;
    if (attention_choice != AUTO)
        return a->queries > 1 || a->keys > 1; /* cuDNN's gradients need more than one score */
    return a->queries >= LEAST && a->keys >= LEAST && a->queries % STEP == 0 && a->keys % STEP == 0 &&
           (!backward || cuda->capability / 10 == 9);
}

/* `strided`: the logarithms of sums are (heads, rows), as the program's own kernels have them; else (batch, heads,
 * queries). */
static struct key attention_key(const struct ah_cuda_device *cuda, const struct ah_attention_args *a,
                                enum ah_dtype dtype, bool strided)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.ordinal = cuda->ordinal;
    key.sdpa = (struct ah_sdpa){.batch = a->batch,
                                .heads = a->heads,
                                .groups = a->heads / a->group,
                                .queries = a->queries,
                                .keys = a->keys,
                                .width = a->query.width,
                                .value_width = a->value.width,
                                .lse_batch = strided ? a->queries : a->heads * a->queries,
                                .lse_head = strided ? a->batch * a->queries : a->queries,
                                .dtype = dtype == AH_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
                                .backward = a->grad_query.at != 0,
                                .causal = a->right == 0,
                                .ordered = attention_choice != UNORDERED};
    for (int i = 0; i < attention_rows_count(a); i++) {
        const struct ah_attention_rows *rows = attention_rows_of(a, i);
        int64_t all = rows->token * (a->queries > a->keys ? a->queries : a->keys);
        key.sdpa.rows[i] = (struct ah_sdpa_rows){a->batch > 1 ? rows->batch : all, rows->head, rows->token};
    }
    return key;
}

static void plan_drop(const struct ah_cudnn *dnn, struct plan *plan)
{
    ah_dnn_drop(dnn, &plan->chosen);
    ah_sdpa_graph_drop(dnn, &plan->graph);
    *plan = (struct plan){.made = false};
}

static void plan_make(const struct ah_cudnn *dnn, cudnnHandle_t handle, struct plan *plan, const struct key *key)
{
    const struct ah_dnn_limits limits = {1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                                             (key->sdpa.ordered ? 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : 0u),
                                         WORKSPACE};
    struct ah_dnn_work work = {dnn, CUDNN_STATUS_SUCCESS};
    plan_drop(dnn, plan);
    CUstreamCaptureMode mode = ah_cuda_relax();
    ah_sdpa_graph_make(&work, handle, &key->sdpa, &plan->graph);
    bool found =
        work.status == CUDNN_STATUS_SUCCESS && ah_dnn_choose(dnn, handle, plan->graph.itself, &limits, &plan->chosen);
    ah_cuda_tighten(mode);
    if (!found)
        plan_drop(dnn, plan);
    plan->key = *key;
    plan->made = true;
    plan->absent = !found;
}

/* The plan of a key: one that is kept, or a new one in the place of the one that was used longest ago. NULL when there
 * is none. */
static struct plan *plan_find(const struct ah_cudnn *dnn, cudnnHandle_t handle, const struct key *key)
{
    struct plan *plan = NULL, *oldest = &attention_plans[0];
    for (int i = 0; i < PLANS && !plan; i++) {
        if (attention_plans[i].made && !memcmp(&attention_plans[i].key, key, sizeof *key))
            plan = &attention_plans[i];
        else if (attention_plans[i].used < oldest->used)
            oldest = &attention_plans[i];
    }
    if (!plan) {
        plan = oldest;
        plan_make(dnn, handle, plan, key);
    }
    plan->used = ++attention_uses;
    return plan->absent ? NULL : plan;
}

/* Memory for a call: the workspace, and behind it the sums of an unordered gradient. */
static size_t plan_scratch_bytes(const struct plan *plan, size_t *sums_at)
{
    const struct ah_sdpa *s = &plan->key.sdpa;
    *sums_at = ((size_t)plan->chosen.workspace + 255) / 256 * 256;
    if (!s->backward || s->ordered)
        return *sums_at;
    return *sums_at + (size_t)(s->batch * s->heads * s->queries * s->width) * sizeof(float);
}

static cudnnStatus_t plan_execute(const struct ah_cudnn *dnn, cudnnHandle_t handle, const struct plan *plan,
                                  const struct ah_attention_args *a, uint64_t lse, char *scratch, size_t sums_at)
{
    static const float one = 1, lowest = -INFINITY;
    const struct ah_sdpa *s = &plan->key.sdpa;
    const float scale = (float)a->scale;
    int64_t ids[AH_SDPA_IDS], count = 0;
    void *places[AH_SDPA_IDS];
    const struct {
        enum ah_sdpa_id id;
        bool there;
        const void *place;
    } others[] = {{AH_SDPA_LSE, true, (void *)(uintptr_t)lse},
                  {AH_SDPA_DELTA, s->backward, (void *)(uintptr_t)a->delta},
                  {AH_SDPA_SUM, s->backward && !s->ordered, scratch + sums_at},
                  {AH_SDPA_SCALE, true, &scale},
                  {AH_SDPA_ONE, s->backward, &one},
                  {AH_SDPA_LOWEST, s->causal, &lowest}};
    for (int i = 0; i < attention_rows_count(a); i++, count++) {
        ids[count] = AH_SDPA_UNIQUE(i);
        places[count] = (void *)(uintptr_t)attention_rows_of(a, i)->at;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].there) {
            ids[count] = AH_SDPA_UNIQUE(others[i].id);
            places[count++] = (void *)(uintptr_t)others[i].place;
        }
    return ah_dnn_execute(dnn, handle, &plan->chosen, count, ids, places, scratch);
}

/* The logarithms of sums, (heads, rows), as row-major (batch, heads, queries). */
static int attention_pack_lse(struct ah_call *c, const struct ah_attention_args *a, struct ah_tensor *lse,
                              struct ah_tensor **out)
{
    const int64_t size[] = {a->batch, a->heads, a->queries}, stride[] = {a->queries, a->batch * a->queries, 1};
    AH_OWNED struct ah_tensor *view = NULL;
    AH_TRY(ah_tensor_view(&view, lse, size, stride, 3, lse->offset));
    return ah_cuda_dense(c->device, out, view, lse->dtype);
}

/* Two products of each score, backward five; of causal ones half. */
static double attention_operations(const struct ah_sdpa *s)
{
    double scores = (double)s->batch * (double)s->heads * (double)s->queries * (double)s->keys / (s->causal ? 2 : 1);
    double width = (double)s->width, other = (double)s->value_width;
    return 2 * scores * (s->backward ? 3 * width + 2 * other : width + other);
}

/* Run a plan; as ah_cuda_attention_dnn. One that fails is not tried again. */
static int plan_run(struct ah_call *c, const struct ah_cudnn *dnn, cudnnHandle_t handle, struct plan *plan,
                    const struct ah_attention_args *a, uint64_t lse)
{
    struct ah_cuda_device *cuda = ah_cuda_state(c->device);
    void *scratch = NULL;
    size_t sums_at, bytes = plan_scratch_bytes(plan, &sums_at);
    if (bytes) {
        int status = ah_cuda_memory_take(cuda->memory, bytes, &scratch);
        if (status < 0)
            return status == AH_ENOMEM ? 0 : status;
    }
    AH_TRY(ah_cuda_enter(cuda));
    AH_TRY(ah_cuda_capture_see(cuda, a, sizeof *a));
    struct ah_cuda_span span = ah_cuda_span_begin(cuda, c->op->name, "cuDNN");
    cudnnStatus_t code = plan_execute(dnn, handle, plan, a, lse, scratch, sums_at);
    ah_cuda_span_end(cuda, span, (struct ah_cuda_work){0, attention_operations(&plan->key.sdpa), AH_RATE_HALF});
    /* In the order of the stream: the next owner of the block writes it after these kernels. */
    ah_cuda_memory_give(cuda->memory, scratch);
    plan->absent = code != CUDNN_STATUS_SUCCESS;
    if (plan->absent)
        return 0;
    if (cuda->waits && !cuda->capturing)
        AH_TRY(ah_cuda_check(ah_cuda.stream_synchronise(cuda->compute), "%s: %s: cuDNN", c->device->name, c->op->name));
    return 1;
}

int ah_cuda_attention_dnn(struct ah_call *c, const struct ah_attention_args *args, enum ah_dtype dtype,
                          struct ah_tensor *lse)
{
    struct ah_cuda_device *cuda = ah_cuda_state(c->device);
    cudnnHandle_t handle;
    if (!attention_is_candidate(cuda, args, dtype))
        return 0;
    const struct ah_cudnn *dnn = ah_dnn_open(cuda, &handle);
    size_t version = dnn ? dnn->version() : 0;
    bool backward = args->grad_query.at, strided = !backward || version >= STRIDED_BACKWARD;
    if (version < OLDEST || (backward && version <= LAST_WITHOUT_ODD && args->keys % ODD))
        return 0;
    const struct key key = attention_key(cuda, args, dtype, strided);
    struct plan *plan = plan_find(dnn, handle, &key);
    if (!plan)
        return 0;
    AH_OWNED struct ah_tensor *packed = NULL;
    if (!strided && args->batch > 1 && args->heads > 1)
        AH_TRY(attention_pack_lse(c, args, lse, &packed));
    return plan_run(c, dnn, handle, plan, args, packed ? ah_cuda_data(packed) : args->lse);
}

void ah_cuda_attention_dnn_forget(const struct ah_cuda_device *cuda)
{
    const struct ah_cudnn *dnn;
    for (int i = 0; i < PLANS; i++)
        if (attention_plans[i].made && attention_plans[i].key.ordinal == cuda->ordinal && ah_cudnn_open(&dnn) >= 0)
            plan_drop(dnn, &attention_plans[i]);
}
