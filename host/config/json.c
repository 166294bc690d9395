/* JSON by jansson, which keeps no line numbers. Its own depth limit is far above ours; it is configured to reject
 * duplicate keys. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/status/status.h"
#include "config/tree.h"

static int json_add(struct ah_tree *tree, int parent, const char *key, json_t *value, int depth);

static int add_children(struct ah_tree *tree, int parent, json_t *value, int depth)
{
    const char *key;
    json_t *child;
    size_t index;
    if (depth == AH_TREE_DEPTH)
        return ah_fail(AH_EINVAL, "nested too deep");
    if (json_is_object(value)) {
        json_object_foreach(value, key, child)
            AH_TRY(json_add(tree, parent, key, child, depth + 1));
        return 0;
    }
    json_array_foreach(value, index, child)
        AH_TRY(json_add(tree, parent, NULL, child, depth + 1));
    return 0;
}

static int json_add(struct ah_tree *tree, int parent, const char *key, json_t *value, int depth)
{
    char number[40];
    const char *text = NULL;
    enum ah_tree_kind kind = AH_TREE_TEXT;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        kind = AH_TREE_MAP;
        break;
    case JSON_ARRAY:
        kind = AH_TREE_LIST;
        break;
    case JSON_STRING:
        text = json_string_value(value);
        break;
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
        break;
    case JSON_REAL:
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
        text = number;
        break;
    case JSON_NULL:
        kind = AH_TREE_NULL;
        break;
    default:
        text = json_is_true(value) ? "true" : "false";
    }
    int place = ah_tree_add(tree, parent, kind, key, text, 0);
    AH_TRY(place);
    return kind == AH_TREE_MAP || kind == AH_TREE_LIST ? add_children(tree, place, value, depth) : 0;
}

int ah_tree_read_json(struct ah_tree *tree, const char *text, size_t bytes)
{
    json_error_t error;
    *tree = (struct ah_tree){0};
    if (bytes > AH_TREE_BYTES)
        return ah_fail(AH_EINVAL, "expected at most %d bytes, got %zu", AH_TREE_BYTES, bytes);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root && error.line < 0) /* nothing was read wrongly */
        return ah_fail(AH_ENOMEM, "out of memory");
    if (!root)
        return ah_fail(AH_EINVAL, "line %d: no JSON: %s", error.line, error.text);
    int status = json_add(tree, -1, NULL, root, 0);
    json_decref(root);
    if (status < 0)
        ah_tree_close(tree);
    return status < 0 ? status : 0;
}
