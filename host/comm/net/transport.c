/* The table of wires. */
#include "comm/net/transport.h"

#include <string.h>

enum { WIRES = 8 };
static const struct ah_transport_type *wires[WIRES] = {&ah_tcp_wire};

int ah_transport_register(const struct ah_transport_type *type)
{
    int at = 0;
    while (at < WIRES && wires[at] && wires[at] != type)
        at++;
    if (at == WIRES)
        return ah_fail(AH_EINVAL, "no room for the wire %s: %d are registered", type->name, WIRES);
    wires[at] = type;
    return 0;
}

const struct ah_transport_type *ah_transport_find(const char *name)
{
    for (int i = 0; i < WIRES && wires[i]; i++)
        if (!strcmp(wires[i]->name, name))
            return wires[i];
    return NULL;
}
