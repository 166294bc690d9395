/* The manifest is written as JSON by jansson; its own hash is the last member, appended to the finished text. */
#include "io/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/status/status.h"
#include "io/mapping.h"

/* A manifest of one million files. */
enum { MAX_BYTES = 256 << 20 };

struct ah_manifest {
    json_t *root, *files;
};

int ah_manifest_new(struct ah_manifest **out, const char *facts)
{
    struct ah_manifest *manifest = calloc(1, sizeof *manifest);
    AH_TRY_MEMORY(manifest, "out of memory");
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

/* Files that exist only while a folder is filled: those of io/saver.c and io/writer.c, and NFS's removed open files. */
static bool is_temporary(const char *base)
{
    static const char *const pattern[] = {".part_[0-9]*", ".failed_[0-9]*", ".*.tmp-[0-9]*-[0-9]*", ".nfs*"};
    for (size_t i = 0; i < sizeof pattern / sizeof pattern[0]; i++)
        if (fnmatch(pattern[i], base, 0) == 0)
            return true;
    return false;
}

/* A power failure must not leave a manifest of contents that the disk never received. */
static int sync_file(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int failed = file < 0 || (fsync(file) && errno != EINVAL), reason = errno;
    if (file >= 0)
        close(file);
    return failed ? ah_fail(AH_EIO, "%s: cannot write: %s", path, strerror(reason)) : 0;
}

/* Note a link by the path in it; one to a file has the file's size and hash too. */
static int add_link(struct ah_manifest *manifest, const char *path, const char *name)
{
    struct stat info;
    char target[PATH_MAX], hash[AH_SHA256_TEXT];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return ah_fail(AH_EIO, "%s: %s", path, strerror(errno));
    target[length] = '\0';
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        AH_TRY(sync_file(path));
        AH_TRY(ah_sha256_file(path, hash));
        AH_TRY(ah_manifest_add(manifest, name, (uint64_t)info.st_size, hash));
    } else if (json_object_set_new(manifest->files, name, json_object())) {
        return ah_fail(AH_EINVAL, "'%s': the name of a file is not UTF-8", name);
    }
    if (json_object_set_new(json_object_get(manifest->files, name), "link", json_string(target)))
        return ah_fail(AH_EINVAL, "'%s': the target of the link is not UTF-8", name);
    return 0;
}

static int add_below(struct ah_manifest *manifest, const char *folder, const char *below);

static int add_entry(struct ah_manifest *manifest, const char *path, const char *name)
{
    struct stat info;
    char inside[PATH_MAX + 1], hash[AH_SHA256_TEXT];
    if (json_object_get(manifest->files, name))
        return 0;
    if (lstat(path, &info))
        return ah_fail(AH_EIO, "%s: %s", path, strerror(errno));
    if (S_ISLNK(info.st_mode))
        return add_link(manifest, path, name);
    if (S_ISDIR(info.st_mode)) {
        snprintf(inside, sizeof inside, "%s/", name);
        return add_below(manifest, path, inside);
    }
    if (!S_ISREG(info.st_mode))
        return ah_fail(AH_EIO, "%s: it is neither a file nor a folder", path);
    AH_TRY(ah_sha256_file(path, hash));
    AH_TRY(sync_file(path));
    return ah_manifest_add(manifest, name, (uint64_t)info.st_size, hash);
}

/* `folder` is the whole path, `below` its name in the manifest ("" or "sub/"). */
static int add_below(struct ah_manifest *manifest, const char *folder, const char *below)
{
    char path[PATH_MAX], name[PATH_MAX];
    int status = 0;
    DIR *list = opendir(folder);
    if (!list)
        return ah_fail(AH_EIO, "%s: cannot open: %s", folder, strerror(errno));
    for (struct dirent *entry; status == 0 && (entry = readdir(list));) {
        const char *base = entry->d_name;
        if (!strcmp(base, ".") || !strcmp(base, "..") || is_temporary(base))
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, base) >= (int)sizeof path ||
            snprintf(name, sizeof name, "%s%s", below, base) >= (int)sizeof name - 1)
            status = ah_fail(AH_EIO, "%s: %s", folder, strerror(ENAMETOOLONG));
        else
            status = add_entry(manifest, path, name);
    }
    closedir(list);
    return status < 0 || !*below ? status : ah_folder_sync(folder);
}

int ah_manifest_add_folder(struct ah_manifest *manifest, const char *folder)
{
    return add_below(manifest, folder, "");
}

/* Return the length of the part that the text's own hash covers; 0 when the hash is missing or wrong. */
static size_t hashed_length(const char *text, size_t length)
{
    static const char begin[] = ",\n  \"sha256\": \"", end[] = "\"\n}\n";
    enum { BEGIN = sizeof begin - 1, END = sizeof end - 1, HASH = AH_SHA256_TEXT - 1 };
    char hash[AH_SHA256_TEXT];
    struct ah_sha256 sum;
    if (length < BEGIN + HASH + END)
        return 0;
    size_t head = length - BEGIN - HASH - END;
    ah_sha256_begin(&sum);
    ah_sha256_add(&sum, text, head);
    ah_sha256_end_text(&sum, hash);
    bool fits = !memcmp(text + head, begin, BEGIN) && !memcmp(text + head + BEGIN, hash, HASH) &&
                !memcmp(text + length - END, end, END);
    return fits ? head : 0;
}

int ah_manifest_read(struct ah_manifest **out, const char *folder)
{
    char path[PATH_MAX];
    struct ah_mapping *text = NULL;
    struct ah_manifest *manifest = calloc(1, sizeof *manifest);
    AH_TRY_MEMORY(manifest, "out of memory");
    if (snprintf(path, sizeof path, "%s/" AH_MANIFEST, folder) >= (int)sizeof path) {
        ah_manifest_free(manifest);
        return ah_fail(AH_EIO, "%s", strerror(ENAMETOOLONG));
    }
    int status = ah_mapping_open(&text, path);
    if (status < 0) {
        status = ah_fail(status, "it has no readable " AH_MANIFEST);
    } else if (text->count > MAX_BYTES || !hashed_length((const char *)text->bytes, text->count)) {
        status = ah_fail(AH_EIO, "its " AH_MANIFEST " is damaged");
    } else {
        manifest->root = json_loadb((const char *)text->bytes, text->count, JSON_REJECT_DUPLICATES, NULL);
        manifest->files = json_incref(json_object_get(manifest->root, "files"));
        if (!json_is_object(manifest->files))
            status = ah_fail(AH_EIO, "its " AH_MANIFEST " is damaged");
    }
    ah_mapping_release(text);
    if (status < 0)
        ah_manifest_free(manifest);
    else
        *out = manifest;
    return status;
}

const char *ah_manifest_keeps(void *context, const struct ah_folder_entry *entry)
{
    const struct ah_manifest *manifest = context;
    static const char foreign[] = "is no part of the checkpoint";
    const json_t *noted = json_object_get(manifest->files, entry->name);
    const char *link = json_string_value(json_object_get(noted, "link"));
    if (S_ISDIR(entry->info->st_mode))
        return NULL;
    if (S_ISLNK(entry->info->st_mode)) {
        char target[PATH_MAX];
        ssize_t length = readlinkat(entry->folder, entry->base, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        return link && length >= 0 && !strcmp(link, target) ? NULL : foreign;
    }
    bool named = (noted && !link) || !strcmp(entry->name, AH_MANIFEST) || is_temporary(entry->base);
    return S_ISREG(entry->info->st_mode) && named ? NULL : foreign;
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
