/* Opens the painter's plugin, once. */
#include "data/scene.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

int ah_scene_png(unsigned char **out, size_t *count, const struct ah_scene *scene)
{
    static const struct ah_painter *painter;
    void *symbol = NULL;
    if (!painter) {
        int status = ah_plugin_open("plot", "ah_plot_plugin", &symbol);
        if (status < 0)
            return ah_fail_prefix(status,
                                  "PNG pictures are drawn by cairo (Debian: libcairo2; to build: libcairo2-dev)");
        const struct ah_painter *found = symbol;
        if (found->abi != AH_PAINTER_ABI)
            return ah_fail(AH_EINVAL, "accelhost-plot.so has interface %u, this program %d: build both again",
                           found->abi, AH_PAINTER_ABI);
        painter = found;
    }
    return painter->png(out, count, scene);
}
