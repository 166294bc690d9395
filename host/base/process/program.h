/* The file of this program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Its path, links resolved: /proc/self/exe, or without /proc the path with which it was started. False, and "", when
 * neither is available or it does not fit. */
bool ah_program_path(char *path, size_t room);
