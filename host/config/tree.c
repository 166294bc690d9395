/* The nodes are in one array, linked by their places in it; the last child is found by walking, since maps are small
 * and the number of nodes is limited. */
#include "config/tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"

/* The last child of a node, 0 for none; *found is set if one of them has the key. */
static int last_child(const struct ah_tree *tree, int parent, const char *key, bool *found)
{
    int last = 0;
    for (int at = tree->node[parent].first; at; at = tree->node[at].next) {
        *found |= key && !strcmp(tree->node[at].key, key);
        last = at;
    }
    return last;
}

int ah_tree_add(struct ah_tree *tree, int parent, enum ah_tree_kind kind, const char *key, const char *text, int line)
{
    bool found = false;
    int last = parent < 0 ? 0 : last_child(tree, parent, key, &found), place = tree->count;
    if (found)
        return line ? ah_fail(AH_EINVAL, "line %d: duplicate key '%.200s'", line, key) :
               ah_fail(AH_EINVAL, "duplicate key '%.200s'", key);
    if (place >= AH_TREE_NODES)
        return ah_fail(AH_EINVAL, "more than %d values", AH_TREE_NODES);
    AH_TRY(ah_grow(&tree->node, (size_t)place + 1, &tree->room, sizeof *tree->node));
    struct ah_tree_node *node = &tree->node[place];
    *node = (struct ah_tree_node){.kind = kind, .line = line};
    tree->count++;
    node->key = key ? strdup(key) : NULL;
    node->text = text ? strdup(text) : NULL;
    if ((key && !node->key) || (text && !node->text))
        return ah_fail(AH_ENOMEM, "out of memory");
    if (last)
        tree->node[last].next = place;
    else if (parent >= 0)
        tree->node[parent].first = place;
    return place;
}

void ah_tree_close(struct ah_tree *tree)
{
    for (int i = 0; i < tree->count; i++) {
        free(tree->node[i].key);
        free(tree->node[i].text);
    }
    free(tree->node);
    *tree = (struct ah_tree){0};
}
