/* Signals that a program wants to hear of while it waits, in their order. One queue per process. */
#pragma once

/* Queue this signal from now on; _release restores the previous action. One that is ignored (by nohup, in
 * a shell's background) stays so. AH_EIO. */
int ah_signal_queue_watch(int number);
/* Watch none any more. */
void ah_signal_queue_release(void);
/* To be polled for POLLIN; -1 when no signal was ever watched. */
int ah_signal_queue_fd(void);
/* The next signal's number, or 0. */
int ah_signal_queue_take(void);
