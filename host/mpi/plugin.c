/* The plugin that moves bytes between hosts by MPI: its exports. MPI's calls are made one at a time, by any thread: the
 * one that begins and ends MPI, or the progress thread's. None of them waits, so that a dead peer or a deadline ends
 * waiting callers; only MPI_Init may hang, and is watched by a thread that ends the process.
 *
 * Ranks of MPI_COMM_WORLD are the job's; those of `leaders` are its hosts. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/status/notice.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "comm/net/mpi.h"

enum { AT_ONCE = 1 << 30, TAGS_SURE = 32767 }; /* bytes of a message; tags that every MPI supports */
static const int64_t tick_ns = 200000;

static struct {
    pthread_mutex_t lock; /* around each of MPI's calls */
    MPI_Comm leaders;     /* MPI_COMM_NULL of another rank */
    bool ended;
    bool broken; /* something was given up while it was under way: MPI cannot end well */
    int transports;   /* that were opened: each has its own tags */
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .leaders = MPI_COMM_NULL};

struct exchange {
    struct ah_transport_exchange base;
    int requests;
    MPI_Request request[];
};

struct mpi_transport {
    struct ah_transport base;
    struct ah_transport_exchange *exchanges;
    int first_tag;
};

static int mpi_fail(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return ah_fail(AH_EPEER, "%s: %.*s", what, length, text);
}

static void mpi_nap(int64_t ns)
{
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

/* Wait for a request in which all ranks participate. */
static int mpi_await(MPI_Request *request, const char *what, int64_t timeout_ns)
{
    for (int64_t begin = ah_now_ns();; mpi_nap(tick_ns)) {
        int done = 0;
        pthread_mutex_lock(&mpi.lock);
        int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&mpi.lock);
        if (code != MPI_SUCCESS)
            return mpi_fail(what, code);
        if (done)
            return 0;
        if (ah_now_ns() - begin > timeout_ns) {
            mpi.broken = true;
            return ah_fail(AH_ETIMEOUT, "%s: not all ranks arrived within %.3g s", what, (double)timeout_ns / 1e9);
        }
    }
}

/* Beginning. */

struct watch {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool over;
    int64_t timeout_ns;
    const struct ah_topology *topology;
};

static void *end_what_hangs(void *context)
{
    struct watch *watch = context;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += watch->timeout_ns / 1000000000 + 1;
    pthread_mutex_lock(&watch->lock);
    while (!watch->over)
        if (pthread_cond_timedwait(&watch->change, &watch->lock, &until)) {
            ah_notice("rank %d of %d: MPI_Init did not return within %.3g s: not every rank has called it",
                      watch->topology->rank, watch->topology->size, (double)watch->timeout_ns / 1e9);
            _exit(1);
        }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static int mpi_compare(const struct ah_topology *topology)
{
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1 && topology->size > 1)
        return ah_fail(AH_EINVAL, "MPI sees this process alone where the job has %d ranks: their launcher does not "
                       "support this MPI (srun --mpi=list prints Slurm's; ACCELHOST_WIRE=tcp needs none)",
                       topology->size);
    if (size != topology->size || rank != topology->rank)
        return ah_fail(AH_EINVAL, "rank %d of %d is rank %d of %d to MPI", topology->rank, topology->size, rank, size);
    return 0;
}

static int mpi_initialize(const struct ah_topology *topology)
{
    int level = MPI_THREAD_SINGLE, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS)
        return mpi_fail("MPI_Init", code);
    if (level < MPI_THREAD_SERIALIZED)
        return ah_fail(AH_EINVAL, "this MPI was built without threads: it grants level %d, and %d is needed", level,
                       MPI_THREAD_SERIALIZED);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    AH_TRY(mpi_compare(topology));
    code = MPI_Comm_split(MPI_COMM_WORLD, topology->local_rank ? MPI_UNDEFINED : 0, topology->rank, &mpi.leaders);
    if (code != MPI_SUCCESS)
        return mpi_fail("MPI_Comm_split", code);
    if (mpi.leaders != MPI_COMM_NULL)
        MPI_Comm_set_errhandler(mpi.leaders, MPI_ERRORS_RETURN);
    return 0;
}

static int mpi_begin(const struct ah_topology *topology, int64_t timeout_ns)
{
    struct watch watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .timeout_ns = timeout_ns, .topology = topology};
    pthread_condattr_t clock;
    pthread_t thread;
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun)
        return ah_fail(AH_EINVAL, "MPI was begun before in this process");
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&watch.change, &clock);
    pthread_condattr_destroy(&clock);
    if (ah_helper_start(&thread, end_what_hangs, &watch))
        return ah_fail(AH_ENOMEM, "MPI: no thread that watches it");
    int status = mpi_initialize(topology);
    mpi.broken = status < 0;
    pthread_mutex_lock(&watch.lock);
    watch.over = true;
    pthread_cond_signal(&watch.change);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&watch.change);
    return status;
}

static int mpi_share(void *memory, size_t bytes, int64_t timeout_ns)
{
    MPI_Request request;
    pthread_mutex_lock(&mpi.lock);
    int code = MPI_Ibcast(memory, (int)bytes, MPI_BYTE, 0, mpi.leaders, &request);
    pthread_mutex_unlock(&mpi.lock);
    return code == MPI_SUCCESS ? mpi_await(&request, "the job's store, by MPI", timeout_ns)
                               : mpi_fail("MPI_Ibcast", code);
}

static void mpi_end(int64_t timeout_ns)
{
    MPI_Request request;
    if (mpi.broken || mpi.ended)
        return;
    pthread_mutex_lock(&mpi.lock);
    int code = MPI_Ibarrier(MPI_COMM_WORLD, &request);
    pthread_mutex_unlock(&mpi.lock);
    if (code != MPI_SUCCESS || mpi_await(&request, "the end of MPI", timeout_ns) < 0)
        return;
    pthread_mutex_lock(&mpi.lock);
    mpi.ended = true;
    MPI_Finalize();
    pthread_mutex_unlock(&mpi.lock);
}

/* The transport. */

static const struct ah_transport_type mpi_type;

static int mpi_open(struct ah_transport **out, const struct ah_hosts *hosts, int64_t timeout_ns)
{
    int host = -1, count = 0;
    (void)timeout_ns;
    if (mpi.leaders == MPI_COMM_NULL)
        return ah_fail(AH_EINVAL, "transport mpi: MPI was not begun by this rank as its host's first");
    MPI_Comm_rank(mpi.leaders, &host);
    MPI_Comm_size(mpi.leaders, &count);
    if (host != hosts->mine || count != hosts->count)
        return ah_fail(AH_EINVAL, "transport mpi: host %d of %d is number %d of %d to MPI", hosts->mine, hosts->count,
                       host, count);
    struct mpi_transport *transport = calloc(1, sizeof *transport);
    AH_TRY_MEMORY(transport, "transport: out of memory");
    transport->base = (struct ah_transport){&mpi_type, hosts->mine, hosts->count};
    transport->first_tag = mpi.transports++ % ((TAGS_SURE + 1) / AH_TRANSPORT_TAGS) * AH_TRANSPORT_TAGS;
    *out = &transport->base;
    return 0;
}

static int mpi_messages(const struct ah_transport_piece *piece)
{
    return (int)((piece->bytes + AT_ONCE - 1) / AT_ONCE);
}

static int begin_piece(const struct mpi_transport *transport, struct exchange *exchange,
                       const struct ah_transport_piece *piece, bool sends, int host, int tag)
{
    for (size_t done = 0; done < piece->bytes; done += AT_ONCE) {
        int bytes = (int)(piece->bytes - done < AT_ONCE ? piece->bytes - done : AT_ONCE), code;
        char *memory = (char *)piece->memory + done;
        MPI_Request *request = &exchange->request[exchange->requests];
        if (sends)
            code = MPI_Isend(memory, bytes, MPI_BYTE, host, transport->first_tag + tag, mpi.leaders, request);
        else
            code = MPI_Irecv(memory, bytes, MPI_BYTE, host, transport->first_tag + tag, mpi.leaders, request);
        if (code != MPI_SUCCESS)
            return mpi_fail(sends ? "MPI_Isend" : "MPI_Irecv", code);
        exchange->requests++;
    }
    return 0;
}

static int mpi_start(struct ah_transport *base, uint64_t tag, const struct ah_transport_piece *send,
                     const struct ah_transport_piece *receive, struct ah_transport_exchange **out)
{
    struct mpi_transport *transport = (struct mpi_transport *)base;
    int most = 0, status = 0;
    for (int h = 0; h < base->hosts; h++)
        most += h == base->host ? 0 : mpi_messages(&send[h]) + mpi_messages(&receive[h]);
    struct exchange *exchange = calloc(1, sizeof *exchange + (size_t)most * sizeof exchange->request[0]);
    AH_TRY_MEMORY(exchange, "transport: out of memory");
    ah_transport_list(&transport->exchanges, &exchange->base);
    *out = &exchange->base;
    AH_LOCK_SCOPE(&mpi.lock);
    if (mpi.ended)
        status = ah_fail(AH_EPEER, "MPI has ended");
    for (int way = 0; way < 2; way++) /* receives first, so that arriving data finds its buffer */
        for (int h = 0; h < base->hosts && status == 0; h++)
            if (h != base->host)
                status = begin_piece(transport, exchange, way ? &send[h] : &receive[h], way, h, (int)(uint32_t)tag);
    return status;
}

static void free_exchange(struct exchange *exchange)
{
    ah_transport_unlist(&exchange->base);
    free(exchange);
}

/* MPI does not report which peer is lost; the replica's connections do. */
static int mpi_test(struct ah_transport *base, struct ah_transport_exchange *under_way, bool *done, int *lost)
{
    struct exchange *exchange = (struct exchange *)under_way;
    int all = 1, code = MPI_SUCCESS;
    (void)base;
    (void)lost;
    *done = false;
    pthread_mutex_lock(&mpi.lock);
    for (int i = 0; i < exchange->requests && all && !mpi.ended && code == MPI_SUCCESS; i++)
        code = MPI_Test(&exchange->request[i], &all, MPI_STATUS_IGNORE);
    all &= !mpi.ended;
    pthread_mutex_unlock(&mpi.lock);
    if (code != MPI_SUCCESS)
        return mpi_fail("MPI_Test", code);
    *done = all;
    if (all)
        free_exchange(exchange);
    return 0;
}

static void wait_for(struct ah_transport *base, int64_t limit_ns)
{
    (void)base;
    mpi_nap(limit_ns < tick_ns ? limit_ns : tick_ns);
}

/* A send that is under way cannot be cancelled: its memory stays MPI's, which then never ends. */
static void mpi_close(struct ah_transport *base)
{
    struct mpi_transport *transport = (struct mpi_transport *)base;
    pthread_mutex_lock(&mpi.lock);
    while (transport->exchanges) {
        struct exchange *exchange = (struct exchange *)transport->exchanges;
        mpi.broken = true;
        for (int i = 0; i < exchange->requests && !mpi.ended; i++)
            if (exchange->request[i] != MPI_REQUEST_NULL) {
                MPI_Cancel(&exchange->request[i]);
                MPI_Request_free(&exchange->request[i]);
            }
        free_exchange(exchange);
    }
    pthread_mutex_unlock(&mpi.lock);
    free(transport);
}

static const struct ah_transport_type mpi_type = {
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .start = mpi_start,
    .test = mpi_test,
    .wait_for = wait_for,
};

extern const struct ah_mpi_driver ah_mpi_plugin;
const struct ah_mpi_driver ah_mpi_plugin = {
    .abi = AH_MPI_ABI, .transport = &mpi_type, .begin = mpi_begin, .share = mpi_share, .end = mpi_end,
};
