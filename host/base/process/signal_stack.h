/* The stack on which signal handlers of this thread run (SA_ONSTACK), wherever the stack pointer is at that moment. */
#pragma once

/* Set it up for the calling thread, for as long as the thread lives; a thread that has one keeps it. It has room for
 * several handlers on top of each other, and a guard page below. AH_ENOMEM, AH_EIO. */
int ah_signal_stack_set_up(void);
