/* Whose an address is. */
#ifndef AH_COMM_ADDRESS_H
#define AH_COMM_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Does only this host reach it? */
bool ah_address_is_loopback(const char *host);
/* Is it one of this host's? */
bool ah_address_is_here(const char *host);
/* Where to listen so that others come by this name: the name of a host may mean its loopback to itself. */
const char *ah_address_to_listen(const char *host);
/* One of this host's by which others reach it, as a number: what its name means, else that of its first network.
 * AH_EIO when there is none. */
int ah_address_own(char *address, size_t room);
/* This host's name, of message headers, digits, '-', '_' and '.' only, for reports and tables. */
void ah_address_own_name(char *name, size_t room);

#endif
