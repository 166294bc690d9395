/* Ctrl-C at a prompt: see accelhost._C.interrupt (interrupt.c). */
#pragma once

#include <stdbool.h>

/* Was Ctrl-C pressed while nothing ran, since the last time this was asked? */
bool ah_interrupt_take(void);
