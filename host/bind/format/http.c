/* accelhost._C.http: pages for a browser on this host, a request at a time. Only the loopback address is bound.
 *
 * listen(port) -> a socket, its port (0 chooses one)
 * accept(socket) -> a connection, the target of its GET ("/report.html"), its Host header; nil for any other request
 * answer(connection, status, type, body): send and close it; status is "200 OK" */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "bind/format/http_head.h"
#include "bind/lua/bind.h"

enum { HTTP_SECONDS = 5, HTTP_WAITING = 16 };

static int http_listen(lua_State *L)
{
    lua_Integer port = luaL_checkinteger(L, 1);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(port)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) || listen(fd, HTTP_WAITING) ||
        getsockname(fd, (struct sockaddr *)&at, &size)) {
        int reason = errno;
        if (fd >= 0)
            close(fd);
        return ah_raise_text(L, "cannot listen on 127.0.0.1:%d: %s", (int)port, strerror(reason));
    }
    lua_pushinteger(L, fd);
    lua_pushinteger(L, ntohs(at.sin_port));
    return 2;
}

/* Read up to the empty line that ends the head of a request; false when it does not arrive in time, is too long or is
 * refused. */
static bool http_read_head(int fd, char bytes[AH_HTTP_HEAD], struct ah_http_head *head)
{
    size_t used = 0;
    while (used < AH_HTTP_HEAD) {
        ssize_t count = recv(fd, bytes + used, AH_HTTP_HEAD - used, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        used += (size_t)count;
        int done = ah_http_head_read(head, bytes, used);
        if (done)
            return done > 0;
    }
    return false;
}

static int http_accept(lua_State *L)
{
    static char bytes[AH_HTTP_HEAD];
    struct ah_http_head head;
    struct timeval limit = {.tv_sec = HTTP_SECONDS};
    int fd = accept4((int)luaL_checkinteger(L, 1), NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (!http_read_head(fd, bytes, &head)) {
        close(fd);
        return 0;
    }
    lua_pushinteger(L, fd);
    lua_pushlstring(L, head.target, head.target_bytes);
    if (head.host)
        lua_pushlstring(L, head.host, head.host_bytes);
    else
        lua_pushnil(L);
    return 3;
}

static void http_send(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t count = send(fd, bytes, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return; /* the browser has left */
        bytes += count, size -= (size_t)count;
    }
}

static int http_answer(lua_State *L)
{
    size_t size;
    char head[512];
    int fd = (int)luaL_checkinteger(L, 1);
    const char *status = luaL_checkstring(L, 2), *type = luaL_checkstring(L, 3), *body = luaL_checklstring(L, 4, &size);
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                          "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                          status, type, size);
    if (length > 0 && length < (int)sizeof head) {
        http_send(fd, head, (size_t)length);
        http_send(fd, body, size);
    }
    close(fd);
    return 0;
}

int ah_open_http(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"listen", http_listen}, {"accept", http_accept}, {"answer", http_answer}, {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
