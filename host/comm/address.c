/* An address is here when a socket can have it. */
#include "comm/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_loopback(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    return at->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(six);
}

static bool can_be_had(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool had = fd >= 0 && !bind(fd, at->ai_addr, at->ai_addrlen);
    if (fd >= 0)
        close(fd);
    return had;
}

/* Of the first address that a name has: with any port. */
static bool look(const char *host, bool *loopback, bool *here)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, "0", &hints, &found))
        return false;
    *loopback = is_loopback(found->ai_addr);
    *here = can_be_had(found);
    freeaddrinfo(found);
    return true;
}

bool ah_address_is_loopback(const char *host)
{
    bool loopback, here;
    return look(host, &loopback, &here) && loopback && !strcmp(ah_address_to_listen(host), host);
}

bool ah_address_is_here(const char *host)
{
    bool loopback, here;
    return look(host, &loopback, &here) && here;
}

const char *ah_address_to_listen(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    bool loopback, here, number = inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
    bool other = !number && strcmp(host, "localhost") != 0;
    return other && look(host, &loopback, &here) && loopback ? "0.0.0.0" : host;
}

void ah_address_own_name(char *name, size_t room)
{
    if (gethostname(name, room - 1))
        snprintf(name, room, "host");
    name[room - 1] = 0;
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
            *c = '_';
    if (!*name)
        snprintf(name, room, "host");
}
