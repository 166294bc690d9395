/* Optimizer steps captured in a graph: the device repeats them, but their scalars (rates, corrections, counters) are
 * computed on the host. So a captured step keeps its items, gradients included, which have no other reference once the
 * script has dropped them, and is called again before each replay, which then only updates the scalars. */
#include "base/trace/counters.h"
#include "bind/lua/class.h"
#include "bind/train/optim.h"

enum { SINGLES = 1 + AH_OPTIM_SCALARS };

/* Upvalues. */
enum { AGAIN = 1, GROUP, STATE };

struct again {
    enum ah_optim_kind kind;
    unsigned needs;
    int count;
    double (*before)[SINGLES]; /* the counter and the scalars of each item, before its last step */
    struct ah_optim_item item[];
};

/* The tensors of an item, all of them owned. */
static int tensors_of(struct ah_optim_item *item, struct ah_tensor **list)
{
    int count = 0;
    list[count++] = item->param;
    list[count++] = item->grad;
    for (int i = 0; i < AH_OPTIM_STATES; i++)
        list[count++] = item->state[i];
    list[count++] = item->step;
    for (int i = 0; i < AH_OPTIM_SCALARS; i++)
        list[count++] = item->scalar[i];
    return count;
}

enum { TENSORS = 2 + AH_OPTIM_STATES + 1 + AH_OPTIM_SCALARS };

static int optim_release(lua_State *L)
{
    struct again *again = lua_touserdata(L, 1);
    struct ah_tensor *list[TENSORS];
    for (int i = 0; i < again->count; i++) {
        int count = tensors_of(&again->item[i], list);
        for (int k = 0; k < count; k++)
            ah_tensor_release(list[k]);
    }
    again->count = 0;
    return 0;
}

static const struct ah_class again_class = {.name = "accelhost.optim.again", .collect = optim_release};

static struct ah_tensor *single_of(const struct ah_optim_item *item, int which)
{
    return which == 0 ? item->step : item->scalar[which - 1];
}

/* Is the field of the table on top of the stack this tensor? */
static bool optim_has(lua_State *L, const char *name, const struct ah_tensor *tensor)
{
    lua_getfield(L, -1, name);
    bool is = ah_to_tensor(L, -1) == tensor;
    lua_pop(L, 1);
    return is;
}

/* Are the parameter and its state still those of the group and of the optimizer? */
static bool is_theirs(lua_State *L, enum ah_optim_kind kind, const struct ah_optim_item *item)
{
    const struct ah_optim_kind_info *info = &ah_optim_kinds[kind];
    lua_getfield(L, lua_upvalueindex(GROUP), "params");
    lua_rawgeti(L, -1, item->index);
    bool same = ah_to_tensor(L, -1) == item->param;
    lua_rawget(L, lua_upvalueindex(STATE));
    for (int i = 0; same && i < AH_OPTIM_STATES; i++)
        same = !item->state[i] || (lua_istable(L, -1) && optim_has(L, info->state[i], item->state[i]));
    for (int i = 0; same && i < AH_OPTIM_SCALARS; i++)
        same = !item->scalar[i] || (lua_istable(L, -1) && optim_has(L, info->scalar[i], item->scalar[i]));
    if (same && item->step)
        same = lua_istable(L, -1) && optim_has(L, "step", item->step);
    lua_pop(L, 2);
    return same;
}

static void note_singles(struct again *again, int i)
{
    for (int k = 0; k < SINGLES; k++) {
        struct ah_tensor *single = single_of(&again->item[i], k);
        again->before[i][k] = single ? ah_tensor_get(single, 0) : 0;
    }
}

static int step_again(lua_State *L)
{
    struct again *again = lua_touserdata(L, lua_upvalueindex(AGAIN));
    struct ah_optim_options options;
    ah_optim_read_options(L, lua_upvalueindex(GROUP), again->kind, &options);
    for (int i = 0; i < again->count; i++)
        if (!is_theirs(L, again->kind, &again->item[i]))
            return ah_raise_text(L, "%s: parameter %d or its state was replaced since its step was captured: capture "
                                 "it again", ah_optim_kinds[again->kind].name, again->item[i].index);
    if (ah_optim_needs(again->kind, &options) != again->needs)
        return ah_raise_text(L, "%s: with other options its step needs other state than when it was captured: capture "
                             "" "it again", ah_optim_kinds[again->kind].name);
    for (int i = 0; i < again->count; i++)
        note_singles(again, i);
    ah_check(L, ah_optim_step(again->kind, &options, again->item, again->count));
    ah_counters_step();
    return 0;
}

static int take_back(lua_State *L)
{
    struct again *again = lua_touserdata(L, lua_upvalueindex(AGAIN));
    for (int i = 0; i < again->count; i++)
        for (int k = 0; k < SINGLES; k++)
            if (single_of(&again->item[i], k))
                ah_tensor_set(single_of(&again->item[i], k), 0, again->before[i][k]);
    return 0;
}

static void check_item(lua_State *L, enum ah_optim_kind kind, const struct ah_optim_item *item)
{
    bool packed = ah_tensor_is_contiguous(item->param) && ah_tensor_is_contiguous(item->grad);
    for (int k = 0; k < AH_OPTIM_STATES; k++)
        packed = packed && (!item->state[k] || ah_tensor_is_contiguous(item->state[k]));
    if (!packed)
        ah_raise_text(L, "%s: parameter %d, its gradient or its state is not contiguous, so that its step cannot be "
                      "captured in a graph", ah_optim_kinds[kind].name, item->index);
}

void ah_optim_push_again(lua_State *L, enum ah_optim_kind kind, unsigned needs, int group, int state,
                         const struct ah_optim_item *item, int count)
{
    size_t items = sizeof(struct again) + (size_t)count * sizeof *item;
    struct again *again = ah_class_new(L, &again_class, items + (size_t)count * sizeof *again->before);
    again->kind = kind;
    again->needs = needs;
    again->before = (void *)((char *)again + items);
    for (int i = 0; i < count; i++) {
        struct ah_tensor *list[TENSORS];
        check_item(L, kind, &item[i]);
        again->item[i] = item[i];
        again->item[i].fresh = false; /* the next time */
        note_singles(again, i);
        int tensors = tensors_of(&again->item[i], list);
        for (int k = 0; k < tensors; k++)
            ah_tensor_retain(list[k]);
        again->count++;
    }
    lua_pushvalue(L, -1);
    lua_pushvalue(L, group);
    lua_pushvalue(L, state);
    lua_pushcclosure(L, step_again, STATE);
    lua_insert(L, -2);
    lua_pushcclosure(L, take_back, AGAIN);
}
