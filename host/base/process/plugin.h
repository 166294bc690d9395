/* Shared libraries with features that few programs need: accelhost-NAME.so in the program's folder, or in
 * ../lib/accelhost of a program in bin; opened on first use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Write the path of the plugin of this name. False when there is no such file; then the path is the one in the
 * program's folder. */
bool ah_plugin_find(const char *name, char *path, size_t room);

/* Set *out, NULL at first, to the plugin's interface: its `symbol`, a struct that begins with the `unsigned abi` of the
 * headers that it was built with. It stays open. AH_EINVAL if the file or the symbol is missing, after the text `needs`
 * unless that is NULL, or if the plugin has another abi. */
int ah_plugin_open(const char *name, const char *symbol, unsigned abi, const char *needs, const void **out);
