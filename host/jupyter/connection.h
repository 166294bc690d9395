/* The connection file of a kernel: addresses of its sockets and the key of its messages. */
#pragma once

#include <stddef.h>

enum ah_jupyter_socket {
    AH_SOCKET_SHELL,
    AH_SOCKET_CONTROL,
    AH_SOCKET_STDIN,
    AH_SOCKET_IOPUB,
    AH_SOCKET_HEARTBEAT,
    AH_SOCKETS
};

enum { AH_CONNECTION_ADDRESS = 512, AH_CONNECTION_KEY = 4096, AH_CONNECTION_BYTES = 1 << 16 };

struct ah_jupyter_connection {
    char address[AH_SOCKETS][AH_CONNECTION_ADDRESS]; /* as ZeroMQ writes them: tcp://127.0.0.1:5000 */
    char key[AH_CONNECTION_KEY];                     /* empty: messages are not signed */
    size_t key_bytes;
};

/* Read the text of a connection file. AH_EINVAL: the text names the field; it never contains the key. */
int ah_connection_parse(struct ah_jupyter_connection *out, const char *text, size_t bytes);

/* Read the file. AH_EIO, AH_EINVAL: the text names the file. */
int ah_connection_read(struct ah_jupyter_connection *out, const char *path);
