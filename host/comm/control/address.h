/* The owner of an address: this host, loopback, another host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Does only this host reach it? */
bool ah_address_is_loopback(const char *host);
/* Is it one of this host's? */
bool ah_address_is_here(const char *host);
/* Return the address to listen on so that others reach this host by this name: on the host itself its name may resolve
 * to the loopback address. */
const char *ah_address_to_listen(const char *host);
/* Return a numeric address by which others reach this host: that of its name, else of its first network. AH_EIO when
 * there is none. */
int ah_address_own(char *address, size_t room);
/* This host's name, of message headers, digits, '-', '_' and '.' only, for reports and tables. */
void ah_address_own_name(char *name, size_t room);
