/* A configuration file's content: maps, lists and texts, whichever format it was written in.
 *
 * Read from bytes in memory that may be anything: depth, number of values and length are limited; duplicate keys and
 * features that are not data (aliases, tags, several documents) are errors. Errors are AH_EINVAL and begin with the
 * line where it is known ("line 3: ..."). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AH_TREE_BYTES = 256 * 1024, AH_TREE_NODES = 4096, AH_TREE_DEPTH = 16 };

enum ah_tree_kind { AH_TREE_NULL, AH_TREE_TEXT, AH_TREE_LIST, AH_TREE_MAP };

struct ah_tree_node {
    enum ah_tree_kind kind;
    char *key;  /* in its map; NULL in a list and at the root */
    char *text; /* of AH_TREE_TEXT; numbers and booleans as they are written */
    int line;   /* from 1; 0 if unknown (JSON) */
    bool quoted; /* a text between quotes, in YAML: never a number */
    int first, next; /* the first child, the next sibling: places in the tree, 0 for none */
};

struct ah_tree {
    struct ah_tree_node *node; /* node[0] is the root */
    int count;
    size_t room;
};

/* On failure there is nothing to close. */
int ah_tree_read_yaml(struct ah_tree *tree, const char *text, size_t bytes);
int ah_tree_read_json(struct ah_tree *tree, const char *text, size_t bytes);
void ah_tree_close(struct ah_tree *tree);

/* For the readers: a new node as the last child of `parent` (-1: the root), with copies of key and text. Returns its
 * place. */
int ah_tree_add(struct ah_tree *tree, int parent, enum ah_tree_kind kind, const char *key, const char *text, int line);
