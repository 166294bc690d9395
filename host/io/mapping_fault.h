/* The name of the file for a process that ends by SIGBUS because a mapped file was cut.
 *
 * The handler is installed with the first mapped file. It writes one line to standard error and leaves the rest to the
 * handler before it: by default the process ends by SIGBUS. */
#ifndef AH_IO_MAPPING_FAULT_H
#define AH_IO_MAPPING_FAULT_H

#include "io/mapping.h"

/* Add a mapped file to the ones that are named, or remove it, before it is unmapped. Any thread. */
void ah_mapping_fault_add(struct ah_mapping *mapping);
void ah_mapping_fault_remove(struct ah_mapping *mapping);

#endif
