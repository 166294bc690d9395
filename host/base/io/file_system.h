/* Kinds of file systems. */
#pragma once

#include <stdbool.h>

/* May other hosts have files of a file system open? By its type as statfs(2) reports it: network and cluster file
 * systems, and FUSE, which may be one. */
bool ah_file_system_is_shared(unsigned long type);

/* The same of the file system that holds a file or folder; false if its type cannot be read. */
bool ah_path_is_shared(const char *path);

/* Does surely no other host mount the file system that holds a file or folder, so that each process that sees it sees
 * its locks? True of disks and memory, false for an unknown type. */
bool ah_path_is_local(const char *path);
