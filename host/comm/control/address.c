/* An address is here when a socket can have it. */
#include "comm/control/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/status/status.h"

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
static bool address_resolve(const char *host, bool *loopback, bool *here)
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
    return address_resolve(host, &loopback, &here) && loopback && !strcmp(ah_address_to_listen(host), host);
}

bool ah_address_is_here(const char *host)
{
    bool loopback, here;
    return address_resolve(host, &loopback, &here) && here;
}

const char *ah_address_to_listen(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    bool loopback, here, number = inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
    bool other = !number && strcmp(host, "localhost") != 0;
    return other && address_resolve(host, &loopback, &here) && loopback ? "0.0.0.0" : host;
}

static bool is_own(const struct sockaddr *at)
{
    return at && at->sa_family == AF_INET && !is_loopback(at);
}

static bool write_number(const struct sockaddr *at, char *address, size_t room)
{
    const struct sockaddr_in *four = (const void *)at;
    return inet_ntop(AF_INET, &four->sin_addr, address, (socklen_t)room) != NULL;
}

int ah_address_own(char *address, size_t room)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    struct ifaddrs *networks = NULL;
    char name[256] = "";
    bool done = false;
    gethostname(name, sizeof name - 1);
    if (!getaddrinfo(name, "0", &hints, &found)) {
        for (struct addrinfo *at = found; at && !done; at = at->ai_next)
            done = is_own(at->ai_addr) && can_be_had(at) && write_number(at->ai_addr, address, room);
        freeaddrinfo(found);
    }
    if (!done && !getifaddrs(&networks)) {
        for (struct ifaddrs *at = networks; at && !done; at = at->ifa_next)
            done = (at->ifa_flags & IFF_UP) && is_own(at->ifa_addr) && write_number(at->ifa_addr, address, room);
        freeifaddrs(networks);
    }
    return done ? 0 : ah_fail(AH_EIO, "this host has no address by which others reach it");
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
