/* Convolution by im2col and matrix products on row-major arrays, for one element type: REAL, with SUFFIX(name) and
 * GEMM set by cpu/loop/for_reals.h. Used for float64, and for float32 where oneDNN is absent or has no kernel. */

/* One group of one image as a matrix: row (c, kh, kw), column (oh, ow); padding reads as 0. */
static void SUFFIX(im2col)(const struct ah_conv *s, const REAL *restrict image, REAL *restrict matrix)
{
    int64_t channels = s->c / s->groups, kernel = s->kh * s->kw, pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(channels * kernel * pixels, AH_SHARE_LIGHT))
    for (int64_t row = 0; row < channels * kernel; row++) {
        const REAL *plane = image + row / kernel * s->h * s->w;
        int64_t dy = row % kernel / s->kw * s->dilation[0] - s->padding[0];
        int64_t dx = row % s->kw * s->dilation[1] - s->padding[1];
        REAL *to = matrix + row * pixels;
        for (int64_t y = 0; y < s->oh; y++) {
            int64_t iy = y * s->stride[0] + dy;
            for (int64_t x = 0; x < s->ow; x++) {
                int64_t ix = x * s->stride[1] + dx;
                bool inside = iy >= 0 && iy < s->h && ix >= 0 && ix < s->w;
                to[y * s->ow + x] = inside ? plane[iy * s->w + ix] : 0;
            }
        }
    }
}

/* The adjoint: add the matrix back into the image. Threads own channels, so the order of additions is fixed. */
static void SUFFIX(col2im)(const struct ah_conv *s, const REAL *restrict matrix, REAL *restrict image)
{
    int64_t channels = s->c / s->groups, kernel = s->kh * s->kw, pixels = s->oh * s->ow;
#pragma omp parallel for schedule(static) if (ah_worth_threads(channels * kernel * pixels, AH_SHARE_LIGHT))
    for (int64_t c = 0; c < channels; c++) {
        REAL *plane = image + c * s->h * s->w;
        for (int64_t k = 0; k < kernel; k++) {
            int64_t dy = k / s->kw * s->dilation[0] - s->padding[0];
            int64_t dx = k % s->kw * s->dilation[1] - s->padding[1];
            const REAL *from = matrix + (c * kernel + k) * pixels;
            for (int64_t y = 0; y < s->oh; y++) {
                int64_t iy = y * s->stride[0] + dy;
                if (iy < 0 || iy >= s->h)
                    continue;
                for (int64_t x = 0; x < s->ow; x++) {
                    int64_t ix = x * s->stride[1] + dx;
                    if (ix >= 0 && ix < s->w)
                        plane[iy * s->w + ix] += from[y * s->ow + x];
                }
            }
        }
    }
}

/* A 1 x 1 kernel that visits every pixel needs no matrix: the image is one. */
static bool SUFFIX(is_plain)(const struct ah_conv *s)
{
    return s->kh == 1 && s->kw == 1 && s->stride[0] == 1 && s->stride[1] == 1 && s->padding[0] == 0 &&
           s->padding[1] == 0;
}

static int SUFFIX(conv)(const struct ah_conv *s, const REAL *x, const REAL *w, const REAL *bias, REAL *y)
{
    int64_t channels = s->c / s->groups, outs = s->oc / s->groups, depth = channels * s->kh * s->kw;
    int64_t pixels = s->oh * s->ow;
    AH_CLEANUP(ah_dense_close) struct ah_dense matrix = {0};
    if (!SUFFIX(is_plain)(s))
        AH_TRY(ah_dense_scratch(&matrix, (size_t)(depth * pixels) * sizeof(REAL)));
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t g = 0; g < s->groups; g++) {
            const REAL *image = x + (n * s->c + g * channels) * s->h * s->w;
            REAL *to = y + (n * s->oc + g * outs) * pixels;
            for (int64_t o = 0; bias && o < outs; o++)
                for (int64_t p = 0; p < pixels; p++)
                    to[o * pixels + p] = bias[g * outs + o];
            if (matrix.block)
                SUFFIX(im2col)(s, image, matrix.block);
            AH_TRY(GEMM(false, false, outs, pixels, depth, 1, w + g * outs * depth, depth,
                        matrix.block ? matrix.data : image, pixels, bias ? 1 : 0, to, pixels));
        }
    }
    return 0;
}

static int SUFFIX(conv_grad_input)(const struct ah_conv *s, const REAL *gy, const REAL *w, REAL *gx)
{
    int64_t channels = s->c / s->groups, outs = s->oc / s->groups, depth = channels * s->kh * s->kw;
    int64_t pixels = s->oh * s->ow;
    AH_CLEANUP(ah_dense_close) struct ah_dense matrix = {0};
    if (!SUFFIX(is_plain)(s)) {
        AH_TRY(ah_dense_scratch(&matrix, (size_t)(depth * pixels) * sizeof(REAL)));
        memset(gx, 0, (size_t)(s->n * s->c * s->h * s->w) * sizeof(REAL));
    }
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t g = 0; g < s->groups; g++) {
            const REAL *from = gy + (n * s->oc + g * outs) * pixels;
            REAL *image = gx + (n * s->c + g * channels) * s->h * s->w;
            AH_TRY(GEMM(true, false, depth, pixels, outs, 1, w + g * outs * depth, depth, from, pixels, 0,
                        matrix.block ? matrix.block : image, pixels));
            if (matrix.block)
                SUFFIX(col2im)(s, matrix.data, image);
        }
    }
    return 0;
}

static int SUFFIX(conv_grad_weight)(const struct ah_conv *s, const REAL *x, const REAL *gy, REAL *gw)
{
    int64_t channels = s->c / s->groups, outs = s->oc / s->groups, depth = channels * s->kh * s->kw;
    int64_t pixels = s->oh * s->ow;
    AH_CLEANUP(ah_dense_close) struct ah_dense matrix = {0};
    if (!SUFFIX(is_plain)(s))
        AH_TRY(ah_dense_scratch(&matrix, (size_t)(depth * pixels) * sizeof(REAL)));
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t g = 0; g < s->groups; g++) {
            const REAL *image = x + (n * s->c + g * channels) * s->h * s->w;
            const REAL *from = gy + (n * s->oc + g * outs) * pixels;
            if (matrix.block)
                SUFFIX(im2col)(s, image, matrix.block);
            AH_TRY(GEMM(false, true, outs, depth, pixels, 1, from, pixels, matrix.block ? matrix.data : image,
                        pixels, n ? 1 : 0, gw + g * outs * depth, depth));
        }
    }
    return 0;
}

/* out[c] = sum of x[n, c, pixel]: planes one by one in order, threads owning channels. */
static void SUFFIX(channel_sum)(const REAL *x, int64_t n, int64_t c, int64_t pixels, REAL *out)
{
#pragma omp parallel for schedule(static) if (ah_worth_threads(n * c * pixels, AH_SHARE_LIGHT))
    for (int64_t k = 0; k < c; k++) {
        REAL total = 0;
        for (int64_t i = 0; i < n; i++) {
            const REAL *plane = x + (i * c + k) * pixels;
            REAL sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t p = 0; p < pixels; p++)
                sum += plane[p];
            total += sum;
        }
        out[k] = total;
    }
}
