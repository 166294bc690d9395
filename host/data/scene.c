/* Opens the painter's plugin, once. */
#include "data/scene.h"

#include "base/process/plugin.h"
#include "base/status/status.h"

int ah_scene_png(unsigned char **out, size_t *count, const struct ah_scene *scene)
{
    static const void *found;
    AH_TRY(ah_plugin_open("plot", "ah_plot_plugin", AH_PAINTER_ABI,
                          "PNG pictures are drawn by cairo (Debian: libcairo2; to build: libcairo2-dev)", &found));
    const struct ah_painter *painter = found;
    return painter->png(out, count, scene);
}
