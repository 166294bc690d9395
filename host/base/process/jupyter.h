/* A Jupyter kernel's side of the protocol: sockets, signatures, captured output. It is the plugin accelhost-jupyter.so
 * (ZeroMQ), which exports its `struct ah_jupyter` as `ah_jupyter_plugin` and is opened by `accelhost jupyter`. One
 * kernel per process.
 *
 * A thread serves the sockets: it answers heartbeats, requests of the control channel (interrupt, shutdown) and
 * kernel_info_request there while code runs, checks signatures, and publishes the text that the process and its
 * children write to stdout and stderr. The program's main thread waits for requests, runs them and sends replies. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AH_JUPYTER_ABI = 1, AH_JUPYTER_TYPE = 64 };

enum ah_jupyter_channel {
    AH_JUPYTER_SHELL,
    AH_JUPYTER_CONTROL,
    AH_JUPYTER_STDIN,
    AH_JUPYTER_IOPUB,
    AH_JUPYTER_CHANNELS
};

/* Bytes that belong to another object. */
struct ah_jupyter_text {
    const char *bytes;
    size_t count;
};

/* A received message, whose signature and form are right; or the parts of one to be sent. Header, parent, metadata and
 * content are texts of JSON. */
struct ah_jupyter_message {
    enum ah_jupyter_channel channel;
    char type[AH_JUPYTER_TYPE];
    struct ah_jupyter_text route; /* the client, as the socket names it */
    struct ah_jupyter_text header, parent, metadata, content;
    struct ah_jupyter_message *next;
};

struct ah_embedded;

struct ah_jupyter {
    unsigned abi; /* AH_JUPYTER_ABI of the headers that the plugin was built with */
    /* The kernel in Lua, ended by a module without a name. */
    const struct ah_embedded *modules;
    /* "4.3.4": ZeroMQ's. */
    const char *(*version)(void);
    /* Bind the sockets of a connection file and start the thread. `info`: the content of kernel_info_reply. From now on
     * stdout and stderr are captured. AH_EIO: the file or a socket; AH_EINVAL: the file's content; AH_ENOMEM. */
    int (*open)(const char *path, const char *info);
    /* Wait for a message of the shell or stdin channel, which `free` frees. AH_ETIMEOUT after `seconds`; AH_ESTATE: a
     * client has requested the end; AH_EINTR: interrupted by Ctrl-C while code runs. */
    int (*wait)(struct ah_jupyter_message **out, enum ah_jupyter_channel channel, double seconds);
    void (*free)(struct ah_jupyter_message *message);
    /* Queue a message, without its header, after all text that was written until now. AH_ENOMEM, AH_EINVAL. */
    int (*send)(const struct ah_jupyter_message *message);
    /* Attribute text that is written from now on, by processes started from now on too, to the request with this
     * header; with `shared` that of processes started during the last request as well. AH_ENOMEM, AH_EIO. */
    int (*begin)(struct ah_jupyter_text header, bool shared);
    /* Send all that is queued and close the sockets. */
    void (*close)(void);
};

/* Return the plugin; AH_EINVAL where it is not installed. */
int ah_jupyter_open(const struct ah_jupyter **out);
