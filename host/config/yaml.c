/* YAML by libyaml's events. Between two events the open maps and lists are on a stack, and the key that waits for its
 * value belongs to the innermost of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/status/status.h"
#include "config/tree.h"

struct reader {
    struct ah_tree *tree;
    int open[AH_TREE_DEPTH], depth;
    char *key; /* of the innermost map, or NULL */
    int documents;
};

static int fail_at(const yaml_event_t *event, const char *what)
{
    return ah_fail(AH_EINVAL, "line %d: %s", (int)event->start_mark.line + 1, what);
}

static bool is_null(const yaml_event_t *event)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    const char *text = (const char *)event->data.scalar.value;
    for (size_t i = 0; event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

/* Add the parser's current value to the tree. Returns its place. */
static int yaml_put(struct reader *reader, const yaml_event_t *event, enum ah_tree_kind kind, const char *text)
{
    int parent = reader->depth ? reader->open[reader->depth - 1] : -1;
    if (parent >= 0 && reader->tree->node[parent].kind == AH_TREE_MAP && !reader->key)
        return fail_at(event, "expected a key, got a list or a map");
    int place = ah_tree_add(reader->tree, parent, kind, reader->key, text, (int)event->start_mark.line + 1);
    free(reader->key);
    reader->key = NULL;
    return place;
}

static int on_open(struct reader *reader, const yaml_event_t *event, enum ah_tree_kind kind, const void *anchor,
                   const yaml_char_t *tag)
{
    if (anchor)
        return fail_at(event, "anchors (&name) are not supported");
    if (tag)
        return fail_at(event, "tags (!name) are not supported");
    if (reader->depth == AH_TREE_DEPTH)
        return fail_at(event, "nested too deep");
    int place = yaml_put(reader, event, kind, NULL);
    AH_TRY(place);
    reader->open[reader->depth++] = place;
    return 0;
}

static int on_scalar(struct reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    bool in_map = reader->depth && reader->tree->node[reader->open[reader->depth - 1]].kind == AH_TREE_MAP;
    if (event->data.scalar.anchor)
        return fail_at(event, "anchors (&name) are not supported");
    if (event->data.scalar.tag)
        return fail_at(event, "tags (!name) are not supported");
    if (strlen(text) != event->data.scalar.length)
        return fail_at(event, "a text holds a NUL");
    if (in_map && !reader->key) {
        reader->key = strdup(text);
        return reader->key ? 0 : ah_fail(AH_ENOMEM, "out of memory");
    }
    int place = is_null(event) ? yaml_put(reader, event, AH_TREE_NULL, NULL) :
        yaml_put(reader, event, AH_TREE_TEXT, text);
    AH_TRY(place);
    reader->tree->node[place].quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return place;
}

static int on_event(struct reader *reader, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return reader->documents++ ? fail_at(event, "a second document begins") : 0;
    case YAML_ALIAS_EVENT:
        return fail_at(event, "aliases (*name) are not supported");
    case YAML_SCALAR_EVENT:
        return on_scalar(reader, event);
    case YAML_MAPPING_START_EVENT:
        return on_open(reader, event, AH_TREE_MAP, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(reader, event, AH_TREE_LIST, event->data.sequence_start.anchor,
                       event->data.sequence_start.tag);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        reader->depth--;
        return 0;
    default:
        return 0;
    }
}

static int fail_parser(const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return ah_fail(AH_ENOMEM, "out of memory");
    return ah_fail(AH_EINVAL, "line %d: no YAML: %s", (int)parser->problem_mark.line + 1,
                   parser->problem ? parser->problem : "it cannot be read");
}

/* Adds an empty map when the file holds nothing. */
static int read_events(struct reader *reader, yaml_parser_t *parser)
{
    for (bool over = false; !over;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return fail_parser(parser);
        over = event.type == YAML_STREAM_END_EVENT;
        int status = on_event(reader, &event);
        yaml_event_delete(&event);
        AH_TRY(status);
    }
    if (!reader->tree->count || (reader->tree->count == 1 && reader->tree->node[0].kind == AH_TREE_NULL)) {
        ah_tree_close(reader->tree);
        AH_TRY(ah_tree_add(reader->tree, -1, AH_TREE_MAP, NULL, NULL, 1));
    }
    return 0;
}

int ah_tree_read_yaml(struct ah_tree *tree, const char *text, size_t bytes)
{
    struct reader reader = {.tree = tree};
    yaml_parser_t parser;
    *tree = (struct ah_tree){0};
    if (bytes > AH_TREE_BYTES)
        return ah_fail(AH_EINVAL, "expected at most %d bytes, got %zu", AH_TREE_BYTES, bytes);
    if (!yaml_parser_initialize(&parser))
        return ah_fail(AH_ENOMEM, "out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    int status = read_events(&reader, &parser);
    yaml_parser_delete(&parser);
    free(reader.key);
    if (status < 0)
        ah_tree_close(tree);
    return status < 0 ? status : 0;
}
