/* Fuzz target: the head of a request, that arrives in pieces: the first byte is the size of one. The texts are inside
 * the bytes that arrived, in front of the empty line, without its characters, and the same as of the whole.
 * sources: host/bind/format/http_head.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bind/format/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void check_text(const char *text, size_t size, const char *bytes, size_t count)
{
    if (text < bytes || text + size > bytes + count || memchr(text, '\r', size) || memchr(text, '\n', size))
        abort();
}

static void check_head(const struct ah_http_head *head, const char *bytes, size_t count)
{
    const char *end = memmem(bytes, count, "\r\n\r\n", 4);
    if (!end || memcmp(bytes, "GET /", 5) || *head->target != '/')
        abort();
    check_text(head->target, head->target_bytes, bytes, (size_t)(end - bytes));
    if (memchr(head->target, ' ', head->target_bytes))
        abort();
    if (head->host)
        check_text(head->host, head->host_bytes, bytes, (size_t)(end - bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_http_head head, whole;
    size_t size = count > 0 && bytes[0] ? bytes[0] : 1, used = 0;
    if (count == 0)
        return 0;
    int done = 0, all = ah_http_head_read(&whole, (const char *)bytes + 1, count - 1);
    while (done == 0 && used < count - 1) {
        used = used + size < count - 1 ? used + size : count - 1;
        char *copy = malloc(used); /* a separate block: its end is watched */
        memcpy(copy, bytes + 1, used);
        done = ah_http_head_read(&head, copy, used);
        if (done > 0) {
            check_head(&head, copy, used);
            if (all > 0 && (whole.target_bytes != head.target_bytes || !whole.host != !head.host ||
                            (head.host && whole.host_bytes != head.host_bytes)))
                abort();
        }
        free(copy);
    }
    if (done == 0 && all != 0)
        abort();
    return 0;
}
