/* Lines end with CR LF; an empty one ends the head. */
#include "bind/format/http_head.h"

#include <string.h>
#include <strings.h>

/* Return the number of bytes before white space, or all. */
static size_t http_word(const char *bytes, size_t count)
{
    size_t at = 0;
    while (at < count && !strchr(" \t\r\n", bytes[at]))
        at++;
    return at;
}

/* A header line: is it the host's? */
static void http_read_line(struct ah_http_head *out, const char *line, size_t count)
{
    if (out->host || count < 5 || strncasecmp(line, "host:", 5))
        return;
    size_t at = 5;
    while (at < count && (line[at] == ' ' || line[at] == '\t'))
        at++;
    out->host = line + at;
    out->host_bytes = http_word(line + at, count - at);
}

int ah_http_head_read(struct ah_http_head *out, const char *bytes, size_t count)
{
    static const char end[] = "\r\n\r\n", get[] = "GET /";
    const char *last = memmem(bytes, count, end, 4);
    if (memchr(bytes, 0, count))
        return -1;
    if (!last)
        return 0;
    if (last - bytes < 5 || memcmp(bytes, get, 5))
        return -1;
    size_t length = (size_t)(last - bytes);
    *out = (struct ah_http_head){.target = bytes + 4, .target_bytes = http_word(bytes + 4, length - 4)};
    for (const char *line = memmem(bytes, length, end, 2); line;) {
        line += 2;
        size_t rest = (size_t)(last - line);
        const char *next = memmem(line, rest, end, 2);
        http_read_line(out, line, next ? (size_t)(next - line) : rest);
        line = next;
    }
    return 1;
}
