/* One matrix of a batch through LAPACK, for one real type: see `routine` in linalg.c. Each function is called twice:
 * with room NULL it returns the number of REALs of workspace, else it does the work on matrix `at` and returns LAPACK's
 * info. */

/* to[j, i] = from[i, j], rows x columns, in tiles that fit the first cache: LAPACK's order from ours and back. */
static void SUFFIX(turn)(REAL *restrict to, int64_t to_step, const REAL *restrict from, int64_t from_step, int64_t rows,
                         int64_t columns)
{
    enum { TILE = 32 };
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < columns; j0 += TILE)
            for (int64_t i = i0; i < rows && i < i0 + TILE; i++)
                for (int64_t j = j0; j < columns && j < j0 + TILE; j++)
                    to[j * to_step + i] = from[i * from_step + j];
}

static void SUFFIX(spoil)(REAL *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = NAN;
}

static bool SUFFIX(all_finite)(const REAL *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void SUFFIX(identity)(REAL *x, int64_t n)
{
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i * n + i] = 1;
}

/* LU = P^T A; info: the first zero on the diagonal of U. */
int64_t SUFFIX(ah_linalg_lu)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t m = j->m, n = j->n, k = linalg_least(m, n);
    REAL *a = room, *lu = (REAL *)j->out[0] + at * m * n;
    int mi = (int)m, ni = (int)n, info = 0;
    if (!room)
        return m * n;
    if (m * n == 0)
        return 0;
    SUFFIX(turn)(a, m, (const REAL *)j->a + at * m * n, n, m, n);
    LAPACK(getrf)(&mi, &ni, a, &mi, (int *)j->pivots + at * k, &info);
    SUFFIX(turn)(lu, n, a, m, n, m);
    return info;
}

int64_t SUFFIX(ah_linalg_lu_solve)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t n = j->n, k = j->k;
    REAL *lu = room, *b = lu + n * n, *x = (REAL *)j->out[0] + at * n * k;
    int ni = (int)n, ki = (int)k, info = 0;
    if (!room)
        return n * n + n * k;
    if (n * k == 0)
        return 0;
    SUFFIX(turn)(lu, n, (const REAL *)j->a + at * n * n, n, n, n);
    SUFFIX(turn)(b, n, (const REAL *)j->b + at * n * k, k, n, k);
    LAPACK(getrs)(j->flag ? "T" : "N", &ni, &ki, lu, &ni, (const int *)j->pivots + at * n, b, &ni, &info, 1);
    SUFFIX(turn)(x, k, b, n, k, n);
    return info;
}

int64_t SUFFIX(ah_linalg_solve)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t n = j->n, k = j->k, pivots = n * (int64_t)sizeof(int) / (int64_t)sizeof(REAL) + 1;
    REAL *lu = room, *b = lu + n * n, *x = (REAL *)j->out[0] + at * n * k;
    int ni = (int)n, ki = (int)k, info = 0;
    if (!room)
        return n * n + n * k + pivots;
    if (n == 0)
        return 0;
    int *pivot = (int *)(b + n * k);
    SUFFIX(turn)(lu, n, (const REAL *)j->a + at * n * n, n, n, n);
    LAPACK(getrf)(&ni, &ni, lu, &ni, pivot, &info);
    if (info) {
        SUFFIX(spoil)(x, n * k);
        return info;
    }
    SUFFIX(turn)(b, n, (const REAL *)j->b + at * n * k, k, n, k);
    if (k > 0)
        LAPACK(getrs)("N", &ni, &ki, lu, &ni, pivot, b, &ni, &info, 1);
    SUFFIX(turn)(x, k, b, n, k, n);
    return info;
}

int64_t SUFFIX(ah_linalg_inverse)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t n = j->n, pivots = n * (int64_t)sizeof(int) / (int64_t)sizeof(REAL) + 1;
    REAL *lu = room, *work = lu + n * n, *x = (REAL *)j->out[0] + at * n * n;
    int ni = (int)n, lwork = BLOCKED * ni, info = 0;
    if (!room)
        return n * n + BLOCKED * n + pivots;
    if (n == 0)
        return 0;
    int *pivot = (int *)(work + BLOCKED * n);
    SUFFIX(turn)(lu, n, (const REAL *)j->a + at * n * n, n, n, n);
    LAPACK(getrf)(&ni, &ni, lu, &ni, pivot, &info);
    if (info == 0)
        LAPACK(getri)(&ni, lu, &ni, pivot, work, &lwork, &info);
    if (info)
        SUFFIX(spoil)(x, n * n);
    else
        SUFFIX(turn)(x, n, lu, n, n, n);
    return info;
}

/* The determinant, or (flag) its sign and logarithm, and the factors, which sit in out[2]. */
int64_t SUFFIX(ah_linalg_det)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    struct ah_linalg_job factors = *j;
    factors.out[0] = j->out[2];
    if (!room)
        return SUFFIX(ah_linalg_lu)(&factors, at, NULL);
    SUFFIX(ah_linalg_lu)(&factors, at, room);
    int64_t n = j->n;
    const REAL *lu = (const REAL *)j->out[2] + at * n * n;
    const int *pivot = (const int *)j->pivots + at * n;
    REAL product = 1, sign = 1, size = 0;
    for (int64_t i = 0; i < n; i++) {
        REAL u = lu[i * n + i], turned = pivot[i] == i + 1 ? 1 : -1;
        product *= turned * u;
        sign *= turned * (u > 0 ? (REAL)1 : u < 0 ? (REAL)-1 : u);
        size += LOG(u < 0 ? -u : u);
    }
    ((REAL *)j->out[0])[at] = j->flag ? sign : product;
    if (j->flag)
        ((REAL *)j->out[1])[at] = size;
    return 0;
}

int64_t SUFFIX(ah_linalg_triangular_solve)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t n = j->n, rows = j->flag ? n : j->k, columns = j->flag ? j->k : n;
    const REAL *a = (const REAL *)j->a + at * n * n, *b = (const REAL *)j->b + at * n * j->k;
    REAL *x = (REAL *)j->out[0] + at * n * j->k;
    if (!room)
        return 1;
    if (n * j->k == 0)
        return 0;
    memcpy(x, b, (size_t)(n * j->k) * sizeof *x);
    CBLAS(trsm)(CblasRowMajor, j->flag ? CblasLeft : CblasRight, j->upper ? CblasUpper : CblasLower, CblasNoTrans,
                j->unit ? CblasUnit : CblasNonUnit, (int)rows, (int)columns, 1, a, (int)n, x, (int)columns);
    return 0;
}

/* A lower triangle here is an upper one in LAPACK's order: nothing needs turning. */
int64_t SUFFIX(ah_linalg_cholesky)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t n = j->n;
    const REAL *a = (const REAL *)j->a + at * n * n;
    REAL *l = (REAL *)j->out[0] + at * n * n;
    int ni = (int)n, info = 0;
    if (!room)
        return 1;
    if (n == 0)
        return 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < n; c++)
            l[i * n + c] = (j->upper ? c >= i : c <= i) ? a[i * n + c] : 0;
    LAPACK(potrf)(j->upper ? "L" : "U", &ni, l, &ni, &info, 1);
    if (info)
        SUFFIX(spoil)(l, n * n);
    return info;
}

/* out[0]: Q of k columns (NULL: not wanted), out[1]: R of k rows. */
int64_t SUFFIX(ah_linalg_qr)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t m = j->m, n = j->n, k = j->k, reflectors = linalg_least(m, n), wide = n > k ? n : k;
    REAL *a = room, *tau = a + m * wide, *work = tau + reflectors, *r = (REAL *)j->out[1] + at * k * n;
    int mi = (int)m, ni = (int)n, ki = (int)k, rank = (int)reflectors, lwork = (int)(BLOCKED * wide), info = 0;
    if (!room)
        return m * wide + reflectors + BLOCKED * wide + 1;
    SUFFIX(turn)(a, m, (const REAL *)j->a + at * m * n, n, m, n);
    if (reflectors > 0)
        LAPACK(geqrf)(&mi, &ni, a, &mi, tau, work, &lwork, &info);
    for (int64_t i = 0; i < k; i++)
        for (int64_t c = 0; c < n; c++)
            r[i * n + c] = c >= i ? a[c * m + i] : 0;
    if (!j->out[0] || m * k == 0)
        return info;
    REAL *q = (REAL *)j->out[0] + at * m * k;
    if (reflectors == 0) {
        SUFFIX(identity)(q, m);
        return 0;
    }
    LAPACK(orgqr)(&mi, &ki, &rank, a, &mi, tau, work, &lwork, &info);
    SUFFIX(turn)(q, k, a, m, k, m);
    return info;
}

/* Return gesdd's workspace; as a float it may have been rounded down. */
static int SUFFIX(svd_work)(const char *job, int m, int n)
{
    REAL wanted = 0, none[1];
    int query = -1, info = 0, at_most = m > n ? m : n;
    at_most = at_most > 0 ? at_most : 1;
    LAPACK(gesdd)(job, &m, &n, none, &at_most, none, none, &at_most, none, &at_most, &wanted, &query, &info, &info, 1);
    return (int)(wanted + wanted / 65536) + 1;
}

/* out: U, S, V^T; flag: all of their columns and rows; upper: no vectors. */
int64_t SUFFIX(ah_linalg_svd)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t m = j->m, n = j->n, k = linalg_least(m, n), uc = j->flag ? m : k, vr = j->flag ? n : k;
    const char *job = j->upper ? "N" : j->flag ? "A" : "S";
    int mi = (int)m, ni = (int)n, vi = (int)(vr > 0 ? vr : 1), info = 0;
    if (!room)
        return k == 0 ? 1 : m * n + (j->upper ? 2 : m * uc + vr * n) + 8 * k + SUFFIX(svd_work)(job, mi, ni);
    const REAL *from = (const REAL *)j->a + at * m * n;
    REAL *a = room, *s = (REAL *)j->out[1] + at * k, *u = a + m * n, *vt = u + (j->upper ? 1 : m * uc);
    int *iwork = (int *)(vt + (j->upper ? 1 : vr * n));
    REAL *work = (REAL *)iwork + 8 * k;
    REAL *u_out = (REAL *)j->out[0] + at * m * uc, *vt_out = (REAL *)j->out[2] + at * vr * n;
    if (k == 0) {
        if (!j->upper && j->flag && m > 0)
            SUFFIX(identity)(u_out, m);
        if (!j->upper && j->flag && n > 0)
            SUFFIX(identity)(vt_out, n);
        return 0;
    }
    if (!SUFFIX(all_finite)(from, m * n)) {
        info = -4;
    } else {
        int lwork = SUFFIX(svd_work)(job, mi, ni);
        SUFFIX(turn)(a, m, from, n, m, n);
        LAPACK(gesdd)(job, &mi, &ni, a, &mi, s, u, &mi, vt, &vi, work, &lwork, iwork, &info, 1);
    }
    if (info)
        SUFFIX(spoil)(s, k);
    if (!j->upper) {
        SUFFIX(turn)(u_out, uc, u, m, uc, m);
        SUFFIX(turn)(vt_out, n, vt, vr, n, vr);
    }
    return info;
}

/* out: eigenvalues, eigenvectors as columns (flag: wanted). */
int64_t SUFFIX(ah_linalg_eigh)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t n = j->n, work_count = 1 + 6 * n + 2 * n * n;
    const REAL *from = (const REAL *)j->a + at * n * n;
    REAL *a = room, *work = a + n * n, *w = (REAL *)j->out[0] + at * n;
    if (!room)
        return n * n + work_count + BLOCKED * n + 3 + 5 * n;
    if (n == 0)
        return 0;
    int ni = (int)n, lwork = (int)(work_count + BLOCKED * n), liwork = 3 + 5 * ni, info = 0;
    int *iwork = (int *)(work + lwork);
    if (!SUFFIX(all_finite)(from, n * n)) {
        info = -5;
    } else {
        SUFFIX(turn)(a, n, from, n, n, n);
        LAPACK(syevd)(j->flag ? "V" : "N", j->upper ? "U" : "L", &ni, a, &ni, w, work, &lwork, iwork, &liwork, &info, 1,
                      1);
    }
    if (info)
        SUFFIX(spoil)(w, n);
    if (j->flag)
        SUFFIX(turn)((REAL *)j->out[1] + at * n * n, n, a, n, n, n);
    return info;
}

/* Return the drivers' workspace: their documented minima, with space for blocks. gelsd's is bounded for its smallest
 * subproblems of 25. */
static int64_t SUFFIX(lstsq_work)(const struct ah_linalg_job *j)
{
    int64_t k = linalg_least(j->m, j->n), most = j->m > j->n ? j->m : j->n, depth = 32;
    return 12 * most + 2 * k * 25 + 8 * k * depth + k * j->k + 26 * 26 + BLOCKED * (most + j->k) + 64;
}

/* out: the solution in max(m, n) rows, rank, singular values. */
int64_t SUFFIX(ah_linalg_lstsq)(const struct ah_linalg_job *j, int64_t at, void *room)
{
    int64_t m = j->m, n = j->n, k = j->k, rank_most = linalg_least(m, n), high = m > n ? m : n,
            ints = 120 * rank_most + n + 1;
    int64_t work_count = SUFFIX(lstsq_work)(j);
    if (!room)
        return m * n + high * k + work_count + ints;
    REAL *a = room, *b = a + m * n, *work = b + high * k, *s = (REAL *)j->out[2] + at * rank_most;
    int *iwork = (int *)(work + work_count);
    REAL *x = (REAL *)j->out[0] + at * high * k, rcond = (REAL)j->number;
    int mi = (int)m, ni = (int)n, ki = (int)k, hi = (int)high, lwork = (int)work_count, rank = 0, info = 0;
    memset(s, 0, (size_t)rank_most * sizeof *s);
    memset(b, 0, (size_t)(high * k) * sizeof *b);
    if (rank_most > 0 && k > 0) {
        if (!SUFFIX(all_finite)((const REAL *)j->a + at * m * n, m * n) ||
            !SUFFIX(all_finite)((const REAL *)j->b + at * m * k, m * k)) {
            SUFFIX(spoil)(x, high * k);
            return -1;
        }
        SUFFIX(turn)(a, m, (const REAL *)j->a + at * m * n, n, m, n);
        SUFFIX(turn)(b, high, (const REAL *)j->b + at * m * k, k, m, k);
        memset(iwork, 0, (size_t)n * sizeof *iwork);
        if (!strcmp(j->word, "gels"))
            LAPACK(gels)("N", &mi, &ni, &ki, a, &mi, b, &hi, work, &lwork, &info, 1);
        else if (!strcmp(j->word, "gelsy"))
            LAPACK(gelsy)(&mi, &ni, &ki, a, &mi, b, &hi, iwork, &rcond, &rank, work, &lwork, &info);
        else if (!strcmp(j->word, "gelsd"))
            LAPACK(gelsd)(&mi, &ni, &ki, a, &mi, b, &hi, s, &rcond, &rank, work, &lwork, iwork, &info);
        else
            LAPACK(gelss)(&mi, &ni, &ki, a, &mi, b, &hi, s, &rcond, &rank, work, &lwork, &info);
    }
    ((int64_t *)j->out[1])[at] = rank;
    SUFFIX(turn)(x, k, b, high, k, high);
    return info;
}
