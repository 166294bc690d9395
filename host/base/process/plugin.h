/* Shared libraries that bring what few programs need: accelhost-NAME.so beside the program, or in
 * ../lib/accelhost of a program in bin; opened on first use. */
#ifndef AH_BASE_PLUGIN_H
#define AH_BASE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

/* Where the plugin of this name lies. False when it lies nowhere; then the path is the one beside the program. */
bool ah_plugin_find(const char *name, char *path, size_t room);

/* Open it and find its symbol; it stays open. AH_EINVAL says what is missing. */
int ah_plugin_open(const char *name, const char *symbol, void **out);

#endif
