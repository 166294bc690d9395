/* The traversal and the queue of one execution (run.h). The search keeps its own stack, so that a chain of 100,000
 * nodes needs no deep recursion; the queue is a binary heap on sequence numbers. Invariant: node->run and
 * node->run_index are right for every visit from ah_run_visit to ah_run_close, with runs closed in reverse order. */
#include "autograd/engine/run.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/graph/node.h"
#include "base/memory/array.h"

int ah_run_visit(struct ah_run *run, struct ah_node *node)
{
    if (node->run == run)
        return node->run_index;
    AH_TRY(ah_grow(&run->visit, (size_t)run->count + 1, &run->room, sizeof *run->visit));
    struct ah_visit *visit = &run->visit[run->count];
    memset(visit, 0, sizeof *visit);
    visit->node = node;
    visit->outer = node->run;
    visit->outer_index = node->run_index;
    ah_node_retain(node);
    node->run = run;
    node->run_index = run->count;
    return run->count++;
}

int ah_run_want(struct ah_run *run)
{
    for (int i = 0; i < run->wanted_count; i++) {
        if (!run->wanted[i].node)
            continue;
        int index = ah_run_visit(run, run->wanted[i].node);
        AH_TRY(index);
        run->visit[index].wanted = run->visit[index].needed = true;
    }
    return 0;
}

/* All edges of the visit have been traversed: does it lead to something wanted? */
static void run_conclude(struct ah_run *run, struct ah_visit *visit)
{
    const struct ah_node *node = visit->node;
    if (!run->wanted && node->class == &ah_accumulate_class)
        visit->needed = true;
    for (int i = 0; i < visit->cursor && !visit->needed; i++)
        visit->needed = node->edge[i].node && run->visit[node->edge[i].node->run_index].needed;
}

int ah_run_discover(struct ah_run *run, int root)
{
    int top = 0;
    size_t room = 0;
    free(run->stack);
    run->stack = NULL;
    if (run->visit[root].visited)
        return 0;
    for (int next = root; next >= 0;) {
        AH_TRY(ah_grow(&run->stack, (size_t)top + 1, &room, sizeof *run->stack));
        run->visit[next].visited = true;
        run->stack[top++] = next;
        next = -1;
        while (top > 0 && next < 0) {
            struct ah_visit *at = &run->visit[run->stack[top - 1]];
            struct ah_node *node = at->node;
            if (at->cursor == node->input_count || (at->wanted && run->stop_at_wanted)) {
                run_conclude(run, at);
                top--;
                continue;
            }
            struct ah_node *child = node->edge[at->cursor++].node;
            if (!child)
                continue;
            int index = ah_run_visit(run, child); /* `at` may have moved */
            AH_TRY(index);
            run->visit[index].waiting++;
            if (!run->visit[index].visited)
                next = index;
        }
    }
    return 0;
}

int ah_run_start(struct ah_run *run)
{
    size_t outputs = 0;
    for (int i = 0; i < run->count; i++)
        outputs += (size_t)run->visit[i].node->output_count;
    run->grad = calloc(outputs + 1, sizeof *run->grad);
    run->heap = malloc((size_t)(run->count ? run->count : 1) * sizeof *run->heap);
    if (!run->grad || !run->heap)
        return ah_fail(AH_ENOMEM, "out of memory");
    struct ah_tensor **next = run->grad;
    for (int i = 0; i < run->count; i++) {
        run->visit[i].grad = next;
        next += run->visit[i].node->output_count;
    }
    return 0;
}

static bool run_before(const struct ah_run *run, int a, int b)
{
    return run->visit[a].node->sequence > run->visit[b].node->sequence;
}

void ah_run_push(struct ah_run *run, int index)
{
    int at = run->heap_count++;
    while (at > 0 && run_before(run, index, run->heap[(at - 1) / 2])) {
        run->heap[at] = run->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    run->heap[at] = index;
}

int ah_run_pop(struct ah_run *run)
{
    int top = run->heap[0], last = run->heap[--run->heap_count], at = 0;
    for (;;) {
        int child = 2 * at + 1;
        if (child >= run->heap_count)
            break;
        if (child + 1 < run->heap_count && run_before(run, run->heap[child + 1], run->heap[child]))
            child++;
        if (!run_before(run, run->heap[child], last))
            break;
        run->heap[at] = run->heap[child];
        at = child;
    }
    run->heap[at] = last;
    return top;
}

void ah_run_close(struct ah_run *run)
{
    for (int i = 0; i < run->count; i++) {
        struct ah_visit *visit = &run->visit[i];
        visit->node->run = visit->outer;
        visit->node->run_index = visit->outer_index;
        for (int k = 0; visit->grad && k < visit->node->output_count; k++)
            ah_tensor_release(visit->grad[k]);
        ah_parts_free(visit);
    }
    for (int i = 0; i < run->count; i++)
        ah_node_release(run->visit[i].node);
    free(run->visit);
    free(run->grad);
    free(run->heap);
    free(run->stack);
}
