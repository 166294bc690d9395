/* Sums of columns into image planes, for one real type. */

static void SUFFIX(add_row)(const struct ah_patches *p, int64_t ky, int64_t kx, const REAL *row, REAL *plane)
{
    struct span ys = columns_inside(p, 0, ky, p->h, p->oh), xs = columns_inside(p, 1, kx, p->w, p->ow);
    for (int64_t y = ys.first; y < ys.end; y++) {
        REAL *to = plane + (y * p->stride[0] + ky * p->dilation[0] - p->padding[0]) * p->w;
        int64_t shift = kx * p->dilation[1] - p->padding[1];
        for (int64_t x = xs.first; x < xs.end; x++)
            to[x * p->stride[1] + shift] += row[y * p->ow + x];
    }
}

static void SUFFIX(add_rows)(const struct ah_patches *p, const REAL *x, REAL *y)
{
    int64_t window = p->kernel[0] * p->kernel[1], pixels = p->oh * p->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(p->n * p->c * window * pixels, AH_SHARE_LIGHT))
    for (int64_t plane = 0; plane < p->n * p->c; plane++) {
        REAL *to = y + plane * p->h * p->w;
        memset(to, 0, (size_t)(p->h * p->w) * sizeof *to);
        for (int64_t k = 0; k < window; k++)
            SUFFIX(add_row)(p, k / p->kernel[1], k % p->kernel[1], x + (plane * window + k) * pixels, to);
    }
}
