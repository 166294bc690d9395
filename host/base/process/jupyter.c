/* Opens the plugin of Jupyter kernels. */
#include "base/process/jupyter.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

int ah_jupyter_open(const struct ah_jupyter **out)
{
    const void *found = NULL;
    AH_TRY(ah_plugin_open("jupyter", "ah_jupyter_plugin", AH_JUPYTER_ABI,
                          "a Jupyter kernel needs ZeroMQ (Debian: install libzmq3-dev, then build again)", &found));
    *out = found;
    return 0;
}
