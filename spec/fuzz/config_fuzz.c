/* Fuzz target: a configuration file, as YAML and as JSON. The result is a tree whose links hold, within its limits.
 * sources: host/config/tree.c host/config/yaml.c host/config/json.c host/base/memory/array.c
 * sources: host/base/status/status.c */
#include <stdint.h>
#include <stdlib.h>

#include "base/status/status.h"
#include "config/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Every node but the root is one node's child, once. */
static void check(const struct ah_tree *tree)
{
    int children = 0;
    if (tree->count < 1 || tree->count > AH_TREE_NODES)
        abort();
    for (int i = 0; i < tree->count; i++) {
        const struct ah_tree_node *node = &tree->node[i];
        if ((node->kind == AH_TREE_TEXT) != (node->text != NULL))
            abort();
        if (node->first && node->kind != AH_TREE_MAP && node->kind != AH_TREE_LIST)
            abort();
        for (int at = node->first; at; at = tree->node[at].next, children++)
            if ((tree->node[at].key != NULL) != (node->kind == AH_TREE_MAP))
                abort();
    }
    if (children != tree->count - 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static int (*const read[])(struct ah_tree *, const char *, size_t) = {ah_tree_read_yaml, ah_tree_read_json};
    for (int i = 0; i < 2; i++) {
        struct ah_tree tree;
        int status = read[i](&tree, (const char *)bytes, count);
        if (status < 0 && !*ah_error_text())
            abort();
        if (status == 0)
            check(&tree);
        if (status == 0)
            ah_tree_close(&tree);
    }
    return 0;
}
