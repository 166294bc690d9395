/* The first process of a container: the kernel delivers it only signals that it has handlers for, and makes it the
 * parent of every orphaned process. */
#pragma once

/* If this is process 1, continue the program in a child; this process forwards signals, reaps orphaned processes, and
 * ends as the child does. Otherwise do nothing. */
void ah_init_if_first(void);
