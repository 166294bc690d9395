/* The table of transports. */
#include "comm/net/transport.h"

#include <string.h>

enum { WIRES = 8 };
static const struct ah_transport_type *transports[WIRES] = {&ah_tcp_wire};

int ah_transport_register(const struct ah_transport_type *type)
{
    int at = 0;
    while (at < WIRES && transports[at] && transports[at] != type)
        at++;
    if (at == WIRES)
        return ah_fail(AH_EINVAL, "transport %s: %d are registered already", type->name, WIRES);
    transports[at] = type;
    return 0;
}

const struct ah_transport_type *ah_transport_find(const char *name)
{
    for (int i = 0; i < WIRES && transports[i]; i++)
        if (!strcmp(transports[i]->name, name))
            return transports[i];
    return NULL;
}
