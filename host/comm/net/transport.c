/* The table of transports. */
#include "comm/net/transport.h"

#include <string.h>

enum { TRANSPORTS = 8 };
static const struct ah_transport_type *transports[TRANSPORTS] = {&ah_tcp_transport};

int ah_transport_register(const struct ah_transport_type *type)
{
    int at = 0;
    while (at < TRANSPORTS && transports[at] && transports[at] != type)
        at++;
    if (at == TRANSPORTS)
        return ah_fail(AH_EINVAL, "transport %s: %d are registered already", type->name, TRANSPORTS);
    transports[at] = type;
    return 0;
}

const struct ah_transport_type *ah_transport_find(const char *name)
{
    for (int i = 0; i < TRANSPORTS && transports[i]; i++)
        if (!strcmp(transports[i]->name, name))
            return transports[i];
    return NULL;
}
