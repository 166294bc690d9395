/* The manifest is put together as JSON by jansson; its own hash is the last member, put behind the finished text. */
#include "io/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

struct ah_manifest {
    json_t *root, *files;
};

int ah_manifest_new(struct ah_manifest **out, const char *facts)
{
    struct ah_manifest *manifest = calloc(1, sizeof *manifest);
    if (!manifest)
        return ah_fail(AH_ENOMEM, "out of memory");
    manifest->root = json_loads(facts, JSON_REJECT_DUPLICATES, NULL);
    manifest->files = json_object();
    if (!json_is_object(manifest->root) || json_object_set(manifest->root, "files", manifest->files)) {
        ah_manifest_free(manifest);
        return ah_fail(AH_EINVAL, "the manifest's facts are no JSON object");
    }
    *out = manifest;
    return 0;
}

void ah_manifest_free(struct ah_manifest *manifest)
{
    if (!manifest)
        return;
    json_decref(manifest->files);
    json_decref(manifest->root);
    free(manifest);
}

int ah_manifest_add(struct ah_manifest *manifest, const char *name, uint64_t size, const char *hash)
{
    if (json_object_get(manifest->files, name))
        return 0;
    json_t *entry = json_pack("{s:I, s:s}", "size", (json_int_t)size, "sha256", hash);
    if (json_object_set_new(manifest->files, name, entry))
        return ah_fail(AH_EINVAL, "'%s': the name of a file is not UTF-8", name);
    return 0;
}

int ah_manifest_add_list(struct ah_manifest *manifest, const char *lines)
{
    char name[NAME_MAX + 1], hash[AH_SHA256_TEXT];
    while (*lines) {
        uint64_t size;
        int at = 0;
        size_t length = strcspn(lines, "\n");
        if (lines[length] != '\n' || sscanf(lines, "%64[0-9a-f] %" SCNu64 " %n", hash, &size, &at) != 2 || !at ||
            (size_t)at >= length || length - (size_t)at >= sizeof name)
            return ah_fail(AH_EIO, "the list of a part's files is damaged");
        snprintf(name, sizeof name, "%.*s", (int)(length - (size_t)at), lines + at);
        AH_TRY(ah_manifest_add(manifest, name, size, hash));
        lines += length + 1;
    }
    return 0;
}

int ah_manifest_add_list_file(struct ah_manifest *manifest, const char *path)
{
    char *lines = NULL;
    size_t room = 0;
    int status = 0;
    FILE *file = fopen(path, "re");
    if (!file || getdelim(&lines, &room, '\0', file) < 0)
        status = ah_fail(AH_EIO, "%s: cannot read: %s", path, strerror(errno));
    else
        status = ah_manifest_add_list(manifest, lines);
    if (file)
        fclose(file);
    free(lines);
    return status;
}

/* `folder` is the whole path, `below` what the manifest calls it ("" or "sub/"). */
static int add_below(struct ah_manifest *manifest, const char *folder, const char *below)
{
    char path[PATH_MAX], name[PATH_MAX], hash[AH_SHA256_TEXT];
    int status = 0;
    DIR *list = opendir(folder);
    if (!list)
        return ah_fail(AH_EIO, "%s: cannot open: %s", folder, strerror(errno));
    for (struct dirent *entry; status == 0 && (entry = readdir(list));) {
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path ||
            snprintf(name, sizeof name, "%s%s", below, entry->d_name) >= (int)sizeof name - 1) {
            status = ah_fail(AH_EIO, "%s: %s", folder, strerror(ENAMETOOLONG));
        } else if (stat(path, &info)) {
            status = ah_fail(AH_EIO, "%s: %s", path, strerror(errno));
        } else if (S_ISDIR(info.st_mode)) {
            snprintf(name + strlen(name), 2, "/");
            status = add_below(manifest, path, name);
        } else if (!json_object_get(manifest->files, name)) {
            status = ah_sha256_file(path, hash);
            status = status ? status : ah_manifest_add(manifest, name, (uint64_t)info.st_size, hash);
        }
    }
    closedir(list);
    return status;
}

int ah_manifest_add_folder(struct ah_manifest *manifest, const char *folder)
{
    return add_below(manifest, folder, "");
}

int ah_manifest_text(const struct ah_manifest *manifest, char **out)
{
    char hash[AH_SHA256_TEXT];
    char *head = json_dumps(manifest->root, JSON_INDENT(2) | JSON_SORT_KEYS);
    size_t length = head ? strlen(head) : 0, room = length + AH_SHA256_TEXT + 32;
    char *text = head ? malloc(room) : NULL;
    if (text) {
        struct ah_sha256 sum;
        length -= 2; /* the line break and the brace that close the object */
        ah_sha256_begin(&sum);
        ah_sha256_add(&sum, head, length);
        ah_sha256_end_text(&sum, hash);
        snprintf(text, room, "%.*s,\n  \"sha256\": \"%s\"\n}\n", (int)length, head, hash);
    }
    free(head);
    *out = text;
    return text ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}
