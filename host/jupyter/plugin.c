/* The plugin of Jupyter kernels: its exports. The kernel itself is written in Lua (lua/accelhost/jupyter), which is
 * embedded here and not in the program. */
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

#include "base/process/jupyter.h"
#include "bind/lua/embedded.h"
#include "jupyter/service.h"

extern const struct ah_jupyter ah_jupyter_plugin;

static const char *plugin_version(void)
{
    static char text[32];
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    snprintf(text, sizeof text, "%d.%d.%d", major, minor, patch);
    return text;
}

static void plugin_free(struct ah_jupyter_message *message)
{
    free(message);
}

const struct ah_jupyter ah_jupyter_plugin = {
    AH_JUPYTER_ABI,   ah_embedded,      plugin_version,  ah_service_open, ah_service_wait, plugin_free,
    ah_service_send,  ah_service_begin, ah_service_close,
};
