/* A configuration file: bounded reading, its top map's keys are searched in the table of settings. Errors contain
 * the file's name and, where the parser reports it, the line. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/settings.h"
#include "config/tree.h"
#include "config/write.h"

struct source {
    struct ah_settings *settings;
    const struct ah_tree *tree;
    const char *path;
};

/* "train.yaml:3" */
static void place_of(const struct source *source, const struct ah_tree_node *node, char *text, size_t room)
{
    if (node->line)
        snprintf(text, room, "%s:%d", source->path, node->line);
    else
        snprintf(text, room, "%s", source->path);
}

static int fail_at(const struct source *source, const struct ah_tree_node *node, const char *what)
{
    char place[4200];
    place_of(source, node, place, sizeof place);
    return ah_fail(AH_EINVAL, "%s: %s: %s", place, node->key, what);
}

/* [0, 1] as 0,1 */
static int file_join(const struct source *source, const struct ah_tree_node *list, char *text, size_t room)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = list->first; i; i = source->tree->node[i].next) {
        const struct ah_tree_node *item = &source->tree->node[i];
        if (item->kind != AH_TREE_TEXT || at + strlen(item->text) + 2 > room)
            return fail_at(source, list, "expected a list of short values");
        at += (size_t)snprintf(text + at, room - at, "%s%s", at ? "," : "", item->text);
    }
    return 0;
}

static int take_value(const struct source *source, const struct ah_setting_row *row, const struct ah_tree_node *node)
{
    char where[4200], what[4300], joined[256];
    const char *text = node->text;
    place_of(source, node, where, sizeof where);
    snprintf(what, sizeof what, "%s: %s", where, node->key);
    if (node->kind == AH_TREE_NULL)
        return 0;
    if (node->kind == AH_TREE_LIST && row->rule.kind == AH_VALUE_TEXT) {
        AH_TRY(file_join(source, node, joined, sizeof joined));
        text = joined;
        if (!*text)
            return 0;
    } else if (node->kind != AH_TREE_TEXT) {
        return fail_at(source, node, node->kind == AH_TREE_MAP ? "expected a value, got a map" :
                       "expected a value, got a list");
    }
    return ah_settings_set(source->settings, row, text, AH_FROM_FILE, what, where);
}

/* Check the keys of a map of Accelerate's, such as dynamo_config: each must have an accepted value. */
static int take_nested(const struct source *source, const struct ah_setting_row *row, const struct ah_tree_node *map)
{
    if (map->kind == AH_TREE_NULL || (map->kind == AH_TREE_TEXT && !*map->text))
        return 0;
    if (map->kind != AH_TREE_MAP)
        return fail_at(source, map, "expected a map");
    for (int i = map->first; i; i = source->tree->node[i].next) {
        const struct ah_tree_node *node = &source->tree->node[i];
        const struct ah_setting_row *inner = ah_setting_find(node->key);
        if (!inner || inner < ah_setting_rows + AH_SETTINGS || inner->nested)
            return fail_at(source, node, row->reason);
        AH_TRY(take_value(source, inner, node));
    }
    return 0;
}

static int take_key(const struct source *source, const struct ah_tree_node *node)
{
    const struct ah_setting_row *row = ah_setting_find(node->key);
    char place[4200];
    place_of(source, node, place, sizeof place);
    if (!row || node->key[0] == '-') {
        const char *near = ah_setting_nearest(node->key);
        return near ? ah_fail(AH_EINVAL, "%s: unknown key '%.100s' (did you mean '%s'?)", place, node->key, near) :
               ah_fail(AH_EINVAL, "%s: unknown key '%.100s'", place, node->key);
    }
    if (row->not_in_file)
        return fail_at(source, node, "can only be set by a flag or an environment variable");
    return row->nested ? take_nested(source, row, node) : take_value(source, row, node);
}

/* One byte more than a file may have is asked for, so that a longer one shows. */
static int read_descriptor(int file, char *text, size_t *bytes)
{
    struct stat info;
    if (!fstat(file, &info) && S_ISDIR(info.st_mode))
        return ah_fail(AH_EINVAL, "it is a folder");
    *bytes = 0;
    while (*bytes <= AH_TREE_BYTES) {
        ssize_t n = read(file, text + *bytes, AH_TREE_BYTES + 1 - *bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ah_fail(AH_EINVAL, "%s", strerror(errno));
        if (n == 0)
            return 0;
        *bytes += (size_t)n;
    }
    return 0;
}

/* The caller frees the text. */
static int read_bytes(const char *path, char **out, size_t *bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return ah_fail(AH_EINVAL, "cannot read '%s': %s", path, strerror(errno));
    *out = malloc(AH_TREE_BYTES + 1);
    int status = *out ? read_descriptor(file, *out, bytes) : ah_fail(AH_ENOMEM, "out of memory");
    close(file);
    if (status < 0) {
        free(*out);
        return ah_fail_prefix(status, "cannot read '%s'", path);
    }
    return 0;
}

static int take_tree(const struct source *source)
{
    const struct ah_tree_node *root = &source->tree->node[0];
    if (root->kind != AH_TREE_MAP)
        return ah_fail(AH_EINVAL, "%s: expected keys and values, got %s", source->path,
                       root->kind == AH_TREE_LIST ? "a list" : "a value");
    for (int i = root->first; i; i = source->tree->node[i].next)
        AH_TRY(take_key(source, &source->tree->node[i]));
    return 0;
}

int ah_settings_read_file(struct ah_settings *settings, const char *path)
{
    struct ah_tree tree;
    struct source source = {settings, &tree, path};
    char *text = NULL;
    size_t bytes = 0;
    AH_TRY(read_bytes(path, &text, &bytes));
    int status = ah_settings_is_json(path) ? ah_tree_read_json(&tree, text, bytes)
                                           : ah_tree_read_yaml(&tree, text, bytes);
    free(text);
    if (status < 0)
        return ah_fail_prefix(status, "%s", path);
    status = take_tree(&source);
    ah_tree_close(&tree);
    AH_TRY(status);
    free(settings->file);
    settings->file = strdup(path);
    return settings->file ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

int ah_settings_default_path(char *path, size_t room)
{
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length;
    /* A relative folder there counts as none. */
    if (folder && folder[0] == '/')
        length = snprintf(path, room, "%s/accelhost/default_config.yaml", folder);
    else if (home && *home)
        length = snprintf(path, room, "%s/.config/accelhost/default_config.yaml", home);
    else
        return ah_fail(AH_EINVAL, "neither XDG_CONFIG_HOME nor HOME is set, so there is no configuration folder");
    return (size_t)length < room ? 0 : ah_fail(AH_EINVAL, "the folder of configuration files has too long a name");
}
