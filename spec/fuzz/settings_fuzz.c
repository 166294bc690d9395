/* Fuzz target: a file of settings. Settings that are read are written, and read back to the same text.
 * sources: host/config/settings.c host/config/value.c host/config/file.c host/config/write.c host/config/tree.c
 * sources: host/config/yaml.c host/config/json.c host/base/memory/array.c host/base/status/nearest.c
 * sources: host/base/status/status.c */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "config/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int ah_cpu_count(void)
{
    return 4;
}

/* Read the text as a file and write its settings; NULL when it is refused. */
static char *again(const void *bytes, size_t count)
{
    struct ah_settings settings;
    char path[64], *text = NULL;
    int file = memfd_create("settings", MFD_CLOEXEC);
    if (file < 0 || write(file, bytes, count) != (ssize_t)count || ah_settings_open(&settings) < 0)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int status = ah_settings_read_file(&settings, path);
    if (status < 0 && !*ah_error_text())
        abort();
    if (status == 0 && ah_settings_format(&settings, path, &text) < 0)
        text = NULL; /* no UTF-8 */
    ah_settings_close(&settings);
    close(file);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char *first = again(bytes, count);
    if (!first)
        return 0;
    char *second = again(first, strlen(first));
    if (!second || strcmp(first, second))
        abort();
    free(first);
    free(second);
    return 0;
}
