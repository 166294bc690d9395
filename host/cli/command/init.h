/* The first process of a container: the kernel delivers it only signals that it has handlers for, and makes it the
 * parent of every orphaned process. */
#ifndef AH_CLI_INIT_H
#define AH_CLI_INIT_H

/* When this is process 1, the program goes on in a child, and this process passes signals on, reaps what it is given,
 * and ends as the child does. Else nothing. */
void ah_init_if_first(void);

#endif
