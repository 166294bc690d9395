/* Pictures of lines, texts and boxes as PNG files. The painter (cairo) is the plugin accelhost-plot.so, which exports
 * its `struct ah_painter` as `ah_plot_plugin` and is opened with the first picture. The layout is computed in
 * lua/accelhost/plot. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum ah_scene_kind { AH_SCENE_LINE, AH_SCENE_TEXT, AH_SCENE_BOX };

struct ah_scene_item {
    enum ah_scene_kind kind;
    double red, green, blue, alpha; /* 0 to 1 */
    double x, y;                    /* a text's anchor on its base line, a box's upper left corner, in pixels */
    double width, height;           /* a box's; width: a line's thickness too */
    const double *points;           /* x and y of a line's points in turn */
    size_t point_count;             /* points, not numbers */
    const char *text;               /* UTF-8 */
    double size, align;             /* of the letters, in pixels; where the anchor is: 0 left, 0.5 middle, 1 right */
    bool bold;
};

struct ah_scene {
    double width, height; /* pixels */
    const struct ah_scene_item *item;
    size_t count;
};

enum { AH_PAINTER_ABI = 1 };

struct ah_painter {
    unsigned abi; /* AH_PAINTER_ABI of the headers that the plugin was built with */
    int (*png)(unsigned char **out, size_t *count, const struct ah_scene *scene);
};

/* The PNG file of a scene, to be freed by the caller. AH_EINVAL: there is no plugin, a text is no UTF-8, or the picture
 * is too large; AH_ENOMEM. */
int ah_scene_png(unsigned char **out, size_t *count, const struct ah_scene *scene);
