/* Tensors as text, in PyTorch's layout: one width for all numbers, the middle of large tensors left out. */
#include "tensor/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/array.h"

enum { INDENT = 7 /* "tensor(" */ };

struct ah_print_options ah_print_options = AH_PRINT_DEFAULTS;

struct printer {
    const struct ah_tensor *tensor;
    char *text;
    size_t used, room;
    bool failed; /* memory ran out */
    bool floating, integral, scientific, summarize;
    int width; /* of one number */
};

static void format_put(struct printer *p, const char *text, size_t length)
{
    if (p->failed || ah_grow(&p->text, p->used + length + 1, &p->room, 1) < 0) {
        p->failed = true;
        return;
    }
    memcpy(p->text + p->used, text, length);
    p->used += length;
    p->text[p->used] = '\0';
}

static void put_text(struct printer *p, const char *text)
{
    format_put(p, text, strlen(text));
}

static void put_lines(struct printer *p, int lines, int indent)
{
    for (int i = 0; i < lines; i++)
        format_put(p, "\n", 1);
    for (int i = 0; i < indent; i++)
        format_put(p, " ", 1);
}

/* Python writes nan without a sign. */
static int write_float(char *to, size_t room, const char *format, double value)
{
    if (isnan(value))
        return snprintf(to, room, "nan");
    return snprintf(to, room, format, ah_print_options.precision, value);
}

/* A number as printed, without padding: at most 309 digits before the point, where scientific notation is off. */
static int write_number(const struct printer *p, int64_t flat, char *to, size_t room)
{
    if (p->tensor->dtype == AH_BOOL)
        return snprintf(to, room, "%s", ah_tensor_get_int(p->tensor, flat) ? "true" : "false");
    if (p->tensor->dtype == AH_U64)
        return snprintf(to, room, "%llu", (unsigned long long)ah_tensor_get_int(p->tensor, flat));
    if (!p->floating)
        return snprintf(to, room, "%lld", (long long)ah_tensor_get_int(p->tensor, flat));
    double value = ah_tensor_get(p->tensor, flat);
    if (p->scientific)
        return write_float(to, room, "%.*e", value);
    if (!p->integral)
        return write_float(to, room, "%.*f", value);
    if (!isfinite(value))
        return write_float(to, room, "%.*f", value);
    return snprintf(to, room, "%.0f.", value);
}

enum { NUMBER_ROOM = 320 + AH_PRINT_PRECISION };

static void put_number(struct printer *p, int64_t flat)
{
    char number[NUMBER_ROOM];
    int length = write_number(p, flat, number, sizeof number);
    for (int i = length; i < p->width; i++)
        format_put(p, " ", 1);
    format_put(p, number, (size_t)length);
}

/* Visit the elements that will be printed: of a summarised dim only the edges. */
static void each_shown(const struct printer *p, int dim, int64_t flat,
                       void (*visit)(void *, int64_t), void *context)
{
    const struct ah_tensor *t = p->tensor;
    int64_t edge = ah_print_options.edge_items;
    if (dim == t->ndim) {
        visit(context, flat);
        return;
    }
    int64_t n = t->size[dim], left_out = p->summarize && n > 2 * edge ? n - 2 * edge : 0;
    for (int64_t i = 0; i < n - left_out; i++)
        each_shown(p, dim + 1, flat * n + (i < edge || !left_out ? i : i + left_out), visit, context);
}

struct survey {
    struct printer *printer;
    double least, most; /* of the absolute values that are finite and not 0 */
    bool any;
};

static void survey_value(void *context, int64_t flat)
{
    struct survey *s = context;
    double value = fabs(ah_tensor_get(s->printer->tensor, flat));
    if (!isfinite(value) || value == 0)
        return;
    s->least = !s->any || value < s->least ? value : s->least;
    s->most = !s->any || value > s->most ? value : s->most;
    s->any = true;
    if (value != ceil(value))
        s->printer->integral = false;
}

static void survey_width(void *context, int64_t flat)
{
    struct printer *p = context;
    char number[NUMBER_ROOM];
    if (p->floating) { /* zeros and non-finite numbers may be wider, but do not widen the rest */
        double value = ah_tensor_get(p->tensor, flat);
        if (!isfinite(value) || value == 0)
            return;
    }
    int length = write_number(p, flat, number, sizeof number);
    p->width = length > p->width ? length : p->width;
}

static void choose_format(struct printer *p)
{
    p->width = 1;
    p->integral = true;
    if (p->floating) {
        struct survey survey = {.printer = p};
        each_shown(p, 0, 0, survey_value, &survey);
        if (survey.any) {
            p->scientific = survey.most / survey.least > 1000 || survey.most > 1e8 ||
                            (!p->integral && survey.least < 1e-4);
        }
        if (ah_print_options.scientific != AH_SCIENTIFIC_AUTO)
            p->scientific = ah_print_options.scientific == AH_SCIENTIFIC_ON;
    }
    each_shown(p, 0, 0, survey_width, p);
}

/* The last dim: numbers, as many to a line as fit. */
static void put_vector(struct printer *p, int64_t flat, int64_t n, int indent)
{
    int64_t edge = ah_print_options.edge_items;
    int per_line = (ah_print_options.line_width - indent) / (p->width + 2), item = 0;
    bool cut = p->summarize && n > 2 * edge;
    per_line = per_line < 1 ? 1 : per_line;
    format_put(p, "[", 1);
    for (int64_t i = 0; i < n; i++, item++) {
        if (item > 0) {
            format_put(p, ",", 1);
            if (item % per_line == 0)
                put_lines(p, 1, indent + 1);
            else
                format_put(p, " ", 1);
        }
        if (cut && i == edge) {
            put_text(p, " ...");
            i = n - edge - 1;
        } else {
            put_number(p, flat + i);
        }
    }
    format_put(p, "]", 1);
}

static void put_block(struct printer *p, int dim, int64_t flat, int indent)
{
    const struct ah_tensor *t = p->tensor;
    if (dim == t->ndim) {
        put_number(p, flat);
        return;
    }
    int64_t n = t->size[dim], edge = ah_print_options.edge_items;
    if (dim == t->ndim - 1) {
        put_vector(p, flat * n, n, indent);
        return;
    }
    bool cut = p->summarize && n > 2 * edge;
    format_put(p, "[", 1);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) {
            format_put(p, ",", 1);
            put_lines(p, t->ndim - dim - 1, indent + 1);
        }
        if (cut && i == edge) {
            put_text(p, "...");
            i = n - edge - 1;
        } else {
            put_block(p, dim + 1, flat * n + i, indent + 1);
        }
    }
    format_put(p, "]", 1);
}

/* ", suffix", on a new line when it does not fit. *line is the last line's length as PyTorch counts
 * it: 2 too many after the values. */
static void put_suffix(struct printer *p, const char *suffix, size_t *line)
{
    size_t length = strlen(suffix);
    if (*line + length + 2 > (size_t)ah_print_options.line_width) {
        format_put(p, ",", 1);
        put_lines(p, 1, INDENT);
        *line = INDENT + length;
    } else {
        format_put(p, ", ", 2);
        *line += length + 2;
    }
    format_put(p, suffix, length);
}

int ah_tensor_format(const struct ah_tensor *tensor, const char *device, const char *suffix, char **text)
{
    struct printer p = {.tensor = tensor,
                        .floating = ah_dtype_is_float(tensor->dtype),
                        .summarize = (double)tensor->numel > ah_print_options.threshold};
    char part[160];
    bool plain = tensor->dtype == ah_default_dtype || tensor->dtype == AH_I64 || tensor->dtype == AH_BOOL;
    put_text(&p, "tensor(");
    if (tensor->numel > 0) {
        choose_format(&p);
        put_block(&p, 0, 0, INDENT);
    } else {
        put_text(&p, "[]");
    }
    const char *last = p.failed ? NULL : strrchr(p.text, '\n');
    size_t line = last ? strlen(last) + 1 : p.used + 2;
    if (device && device[0])
        put_suffix(&p, device, &line);
    if (tensor->numel == 0 && tensor->ndim != 1) {
        snprintf(part, sizeof part, "size=%s", ah_shape(tensor));
        put_suffix(&p, part, &line);
    }
    /* The values of an empty tensor do not distinguish the default dtype from the integers. */
    if (!plain || (tensor->numel == 0 && tensor->dtype != ah_default_dtype)) {
        snprintf(part, sizeof part, "dtype=%s", ah_dtype_name(tensor->dtype));
        put_suffix(&p, part, &line);
    }
    if (suffix && suffix[0])
        put_suffix(&p, suffix, &line);
    format_put(&p, ")", 1);
    if (p.failed) {
        free(p.text);
        return ah_fail(AH_ENOMEM, "out of memory while printing a tensor");
    }
    *text = p.text;
    return 0;
}
