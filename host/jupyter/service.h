/* The sockets of a kernel and the thread that serves them. */
#pragma once

#include "base/process/jupyter.h"

/* As the functions of struct ah_jupyter. */
int ah_service_open(const char *path, const char *info);
int ah_service_wait(struct ah_jupyter_message **out, enum ah_jupyter_channel channel, double seconds);
int ah_service_send(const struct ah_jupyter_message *message);
int ah_service_begin(struct ah_jupyter_text header, bool shared);
void ah_service_close(void);
