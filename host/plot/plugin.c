/* The plugin that paints scenes, by cairo: its exports, and the painting. The file grows in memory while cairo writes
 * it. */
#include <cairo.h>
#include <stdlib.h>

#include "base/memory/array.h"
#include "base/status/status.h"
#include "data/scene.h"

static cairo_status_t plot_append(void *context, const unsigned char *bytes, unsigned count)
{
    return ah_text_append(context, bytes, count) < 0 ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static void paint_line(cairo_t *cairo, const struct ah_scene_item *item)
{
    if (!item->point_count)
        return;
    /* Thin straight lines are on whole pixels, or they would be blurred over two. */
    cairo_new_path(cairo); /* a text leaves a point behind */
    const double *points = item->points;
    bool straight = item->point_count == 2 && (points[0] == points[2] || points[1] == points[3]);
    for (size_t i = 0; i < item->point_count; i++) {
        double x = points[2 * i], y = points[2 * i + 1];
        if (straight && item->width == 1) {
            x = (double)(long)x + 0.5;
            y = (double)(long)y + 0.5;
        }
        cairo_line_to(cairo, x, y);
    }
    if (item->point_count == 1)
        cairo_line_to(cairo, points[0], points[1]);
    cairo_set_line_width(cairo, item->width);
    cairo_stroke(cairo);
}

static void paint_text(cairo_t *cairo, const struct ah_scene_item *item)
{
    cairo_text_extents_t extents;
    cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           item->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, item->size);
    cairo_text_extents(cairo, item->text, &extents);
    cairo_move_to(cairo, item->x - item->align * extents.x_advance, item->y);
    cairo_show_text(cairo, item->text);
}

static void plot_paint(cairo_t *cairo, const struct ah_scene *scene)
{
    cairo_set_line_cap(cairo, CAIRO_LINE_CAP_ROUND);
    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    for (size_t i = 0; i < scene->count; i++) {
        const struct ah_scene_item *item = &scene->item[i];
        cairo_set_source_rgba(cairo, item->red, item->green, item->blue, item->alpha);
        if (item->kind == AH_SCENE_LINE) {
            paint_line(cairo, item);
        } else if (item->kind == AH_SCENE_TEXT) {
            paint_text(cairo, item);
        } else {
            cairo_rectangle(cairo, item->x, item->y, item->width, item->height);
            cairo_fill(cairo);
        }
    }
}

static int plot_png(unsigned char **out, size_t *count, const struct ah_scene *scene)
{
    struct ah_text file = {0};
    int width = (int)(scene->width + 0.5), height = (int)(scene->height + 0.5);
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    cairo_t *cairo = cairo_create(surface);
    plot_paint(cairo, scene);
    cairo_status_t status = cairo_status(cairo);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_write_to_png_stream(surface, plot_append, &file);
    cairo_destroy(cairo);
    cairo_surface_destroy(surface);
    if (status != CAIRO_STATUS_SUCCESS) {
        free(file.at);
        return ah_fail(status == CAIRO_STATUS_NO_MEMORY ? AH_ENOMEM : AH_EINVAL,
                       "cannot draw a picture of %d x %d pixels: %s", width, height, cairo_status_to_string(status));
    }
    *out = (unsigned char *)file.at;
    *count = file.bytes;
    return 0;
}

extern const struct ah_painter ah_plot_plugin;

const struct ah_painter ah_plot_plugin = {AH_PAINTER_ABI, plot_png};
