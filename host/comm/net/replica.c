/* The replica's threads, and ranks that do their work for a while. The sender sleeps on the control block's
 * notifications, scans, and writes to sockets that do not block; bytes that a socket does not accept wait in memory,
 * and only long messages wait for it. The receiver sleeps on the sockets, and counts for how long each of them has been
 * silent: only time in which this process ran, so that a job that was suspended continues. */
#include "comm/net/replica.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/trace/time.h"
#include "comm/net/mesh.h"
#include "comm/net/replica_frames.h"

static const int64_t heartbeat_default_ns = 5000000000, tick_ns = 100000000, longest_tick_ns = 300000000;
static const int64_t farewell_ns = 1000000000, doubt_ns = 1000000000;
enum {
    BEATS = 5,        /* in the time after which a host is lost */
    FULL = 4 << 20,   /* bytes that wait for a socket */
    BITE = 32 * 1024, /* bytes passed to it at once: the other host reads them while it accepts the next */
};

void ah_replica_lose(struct ah_replica *replica, int host, const char *why)
{
    char text[256];
    snprintf(text, sizeof text, "host %s is gone: %s", replica->hosts->name[host], why);
    pthread_mutex_lock(&replica->losing);
    if (!atomic_exchange(&replica->peer[host].lost, true)) {
        shutdown(replica->peer[host].fd, SHUT_RDWR);
        for (int r = replica->hosts->first[host]; r < replica->hosts->first[host + 1]; r++)
            ah_control_leave(replica->control, r, AH_RANK_DIED, text, false);
    }
    pthread_mutex_unlock(&replica->losing);
}

void ah_replica_doubt(struct ah_replica *replica, int host, const char *why)
{
    struct replica_peer *peer = &replica->peer[host];
    pthread_mutex_lock(&replica->losing);
    if (!peer->doubted) {
        snprintf(peer->doubt, sizeof peer->doubt, "%s", why);
        peer->doubted = true;
    }
    pthread_mutex_unlock(&replica->losing);
}

/* Declare hosts lost that have been doubted for long enough. Only time in which this process ran counts: received
 * frames that it could not read yet may answer the doubt. */
static void replica_count_doubts(struct ah_replica *replica, int64_t passed)
{
    for (int h = 0; h < replica->hosts->count; h++) {
        struct replica_peer *peer = &replica->peer[h];
        pthread_mutex_lock(&replica->losing);
        if (peer->doubted)
            peer->doubted_ns += passed < longest_tick_ns ? passed : longest_tick_ns;
        bool over = peer->doubted_ns >= doubt_ns;
        pthread_mutex_unlock(&replica->losing);
        if (over && !atomic_load(&peer->lost) && !atomic_load(&peer->done))
            ah_replica_lose(replica, h, peer->doubt);
    }
}

static bool is_open(const struct replica_peer *peer)
{
    return peer->fd >= 0 && !atomic_load(&peer->lost) && !atomic_load(&peer->done);
}

/* Sending. */

/* Send as much as the socket accepts; true when something is left. A broken connection is the receiver's to find. */
static bool replica_flush(struct replica_peer *peer)
{
    while (is_open(peer) && peer->sent < peer->out.bytes) {
        size_t left = peer->out.bytes - peer->sent;
        ssize_t n = send(peer->fd, peer->out.at + peer->sent, left < BITE ? left : BITE, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        peer->sent += (size_t)n;
    }
    if (!is_open(peer) || peer->sent == peer->out.bytes) {
        peer->sent = peer->out.bytes = 0;
        return false;
    }
    if (peer->sent >= FULL) { /* sent bytes need not be kept */
        peer->out.bytes -= peer->sent;
        memmove(peer->out.at, peer->out.at + peer->sent, peer->out.bytes);
        peer->sent = 0;
    }
    return true;
}

static bool flush_all(struct ah_replica *replica)
{
    bool left = false;
    for (int h = 0; h < replica->hosts->count; h++)
        left |= replica_flush(&replica->peer[h]);
    return left;
}

static void wait_for_room(struct ah_replica *replica)
{
    struct pollfd look[AH_HOSTS_MAX];
    for (int h = 0; h < replica->hosts->count; h++) {
        const struct replica_peer *peer = &replica->peer[h];
        look[h] = (struct pollfd){.fd = is_open(peer) && peer->out.bytes ? peer->fd : -1, .events = POLLOUT};
    }
    poll(look, (nfds_t)replica->hosts->count, 1);
}

/* The most that waits for one of the sockets. */
static size_t replica_backlog(const struct ah_replica *replica)
{
    size_t most = 0;
    for (int h = 0; h < replica->hosts->count; h++)
        most = replica->peer[h].out.bytes - replica->peer[h].sent > most
                   ? replica->peer[h].out.bytes - replica->peer[h].sent : most;
    return most;
}

static bool all_have_ended(const struct ah_control_block *control)
{
    for (int r = control->header->first; r < control->header->first + control->header->local; r++)
        if (atomic_load(&ah_rank_entry((struct ah_control_block *)control, r)->state) == AH_RANK_RUNNING)
            return false;
    return true;
}

static void send_goodbye(struct ah_replica *replica)
{
    int64_t begin = ah_now_ns();
    pthread_mutex_lock(&replica->sending);
    ah_replica_scan(replica, false, &replica->more);
    if (all_have_ended(replica->control))
        ah_replica_send(replica, -1, (struct replica_head){.kind = REPLICA_BYE}, NULL, NULL, 0);
    while (flush_all(replica) && ah_now_ns() - begin < farewell_ns)
        wait_for_room(replica);
    pthread_mutex_unlock(&replica->sending);
    for (int h = 0; h < replica->hosts->count; h++)
        if (replica->peer[h].fd >= 0)
            shutdown(replica->peer[h].fd, SHUT_WR);
}

/* Send the changes. True when a socket has not accepted all. */
static bool replica_send_changes(struct ah_replica *replica, bool beat)
{
    replica->seen_changes = atomic_load(&replica->control->header->notification[AH_REPLICA].changes);
    replica->more = replica_backlog(replica) >= FULL;
    if (!replica->more && ah_replica_scan(replica, beat, &replica->more) < 0)
        for (int h = 0; h < replica->hosts->count; h++)
            if (is_open(&replica->peer[h]))
                ah_replica_lose(replica, h, "out of memory for the data to send to it");
    return flush_all(replica);
}

static void *send_changes(void *context)
{
    struct ah_replica *replica = context;
    struct ah_notification *notification = &replica->control->header->notification[AH_REPLICA];
    int64_t beat_ns = replica->heartbeat_timeout_ns / BEATS, last = ah_now_ns();
    uint32_t visits = 0;
    while (!atomic_load(&replica->shutting_down)) {
        int64_t now = ah_now_ns();
        bool beat = now - last >= beat_ns;
        last = beat ? now : last;
        atomic_fetch_add(&replica->control->header->beats, beat);
        pthread_mutex_lock(&replica->sending);
        bool left = replica_send_changes(replica, beat), more = replica->more;
        uint32_t seen = replica->seen_changes;
        if (left)
            wait_for_room(replica);
        pthread_mutex_unlock(&replica->sending);
        if (!left && !more && !ah_notification_nap(notification, &visits))
            ah_notification_sleep(notification, seen,
                                  beat_ns - (ah_now_ns() - last) > 1000000 ? beat_ns - (ah_now_ns() - last) : 1000000);
    }
    send_goodbye(replica);
    return NULL;
}

/* Receiving. */

/* All frames that are here whole. */
static int apply_frames(struct ah_replica *replica, int host)
{
    struct replica_peer *peer = &replica->peer[host];
    struct replica_head head;
    size_t at = 0;
    while (peer->got - at >= sizeof head && is_open(peer)) {
        memcpy(&head, peer->in + at, sizeof head);
        if (head.bytes > REPLICA_MOST)
            return ah_fail(AH_EINVAL, "it sent a frame of %u bytes", head.bytes);
        if (peer->got - at < sizeof head + head.bytes)
            break;
        AH_TRY(ah_replica_apply(replica, host, &head, peer->in + at + sizeof head));
        at += sizeof head + head.bytes;
    }
    memmove(peer->in, peer->in + at, peer->got - at);
    peer->got -= at;
    return 0;
}

/* Relaxed: a duration for messages. */
static void set_silent_ns(struct ah_replica *replica, int host, int64_t silent_ns)
{
    replica->peer[host].silent_ns = silent_ns;
    atomic_store_explicit(&ah_rank_entry(replica->control, replica->hosts->first[host])->silent_ms,
                          (int)(silent_ns / 1000000), memory_order_relaxed);
}

/* Receive messages. True when some have arrived. */
static bool replica_receive(struct ah_replica *replica, int host)
{
    struct replica_peer *peer = &replica->peer[host];
    ssize_t n = recv(peer->fd, peer->in + peer->got, 2 * REPLICA_MOST - peer->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        ah_replica_lose(replica, host, n == 0 ? "its first rank has ended" : strerror(errno));
        return false;
    }
    peer->got += (size_t)n;
    set_silent_ns(replica, host, 0);
    if (apply_frames(replica, host) < 0)
        ah_replica_lose(replica, host, ah_error_text());
    if (atomic_load(&peer->done))
        shutdown(peer->fd, SHUT_RDWR);
    return true;
}

static void count_silent_time(struct ah_replica *replica, int64_t passed)
{
    char why[80];
    for (int h = 0; h < replica->hosts->count; h++) {
        struct replica_peer *peer = &replica->peer[h];
        if (h != replica->hosts->mine && !atomic_load(&peer->done))
            set_silent_ns(replica, h, peer->silent_ns + (passed < longest_tick_ns ? passed : longest_tick_ns));
        if (!is_open(peer) || peer->silent_ns < replica->heartbeat_timeout_ns)
            continue;
        snprintf(why, sizeof why, "it has been silent for %.3g s", (double)peer->silent_ns / 1e9);
        ah_replica_lose(replica, h, why);
    }
}

static void *receive_frames(void *context)
{
    struct ah_replica *replica = context;
    struct ah_notification *notification = &replica->control->header->notification[AH_REPLICA];
    struct pollfd look[AH_HOSTS_MAX];
    int64_t before = ah_now_ns();
    uint32_t visits = 0;
    while (!atomic_load(&replica->ended)) {
        bool any = false;
        uint32_t seen = atomic_load(&notification->changes);
        for (int h = 0; h < replica->hosts->count; h++) {
            bool open = is_open(&replica->peer[h]);
            look[h] = (struct pollfd){.fd = open ? replica->peer[h].fd : -1, .events = POLLIN};
            any |= open;
        }
        if (!any && atomic_load(&replica->shutting_down))
            break;
        if (!any) /* until ah_replica_part notifies */
            ah_notification_sleep(notification, seen, tick_ns);
        else if (!ah_notification_nap(notification, &visits))
            poll(look, (nfds_t)replica->hosts->count, (int)(tick_ns / 1000000));
        pthread_mutex_lock(&replica->receiving);
        for (int h = 0; h < replica->hosts->count; h++)
            if (look[h].fd >= 0 && look[h].revents)
                replica_receive(replica, h);
        int64_t now = ah_now_ns();
        count_silent_time(replica, now - before);
        replica_count_doubts(replica, now - before);
        pthread_mutex_unlock(&replica->receiving);
        before = now;
    }
    return NULL;
}

/* In place of the threads. */

bool ah_replica_attend(struct ah_replica *replica)
{
    struct ah_notification *notification = &replica->control->header->notification[AH_REPLICA];
    bool heard = false;
    if (atomic_load(&replica->shutting_down))
        return false;
    ah_notification_attend(notification);
    if (!pthread_mutex_trylock(&replica->sending)) {
        if (replica->seen_changes != atomic_load(&notification->changes) || replica->more || replica_backlog(replica))
            replica_send_changes(replica, false);
        pthread_mutex_unlock(&replica->sending);
    }
    if (!pthread_mutex_trylock(&replica->receiving)) {
        for (int h = 0; h < replica->hosts->count; h++)
            heard |= is_open(&replica->peer[h]) && replica_receive(replica, h);
        pthread_mutex_unlock(&replica->receiving);
    }
    return heard;
}

void ah_replica_leave(struct ah_replica *replica)
{
    ah_notification_leave(&replica->control->header->notification[AH_REPLICA]);
}

/* Opening and closing. */

/* Half of the memory that this host or its control group has. */
static uint64_t find_room(void)
{
    uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned long long limit;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file && fscanf(file, "%llu", &limit) == 1 && limit < most)
        most = limit;
    if (file)
        fclose(file);
    return most / 2;
}

static void free_replica(struct ah_replica *replica)
{
    for (int h = 0; h < AH_HOSTS_MAX; h++) {
        if (replica->peer[h].fd >= 0)
            close(replica->peer[h].fd);
        free(replica->peer[h].out.at);
        free(replica->peer[h].in);
    }
    for (int r = 0; r < AH_MAX_RANKS; r++)
        free(replica->held[r]);
    pthread_mutex_destroy(&replica->losing);
    pthread_mutex_destroy(&replica->sending);
    pthread_mutex_destroy(&replica->receiving);
    free(replica->rank);
    free(replica);
}

int ah_replica_open(struct ah_replica **out, struct ah_control_block *control, int64_t timeout_ns,
                    int64_t heartbeat_timeout_ns)
{
    int fd[AH_HOSTS_MAX], status;
    struct ah_replica *replica = calloc(1, sizeof *replica);
    AH_TRY_MEMORY(replica, "replication: out of memory");
    replica->control = control;
    replica->room = find_room();
    replica->hosts = control->hosts;
    replica->heartbeat_timeout_ns = heartbeat_timeout_ns ? heartbeat_timeout_ns : heartbeat_default_ns;
    pthread_mutex_init(&replica->losing, NULL);
    pthread_mutex_init(&replica->sending, NULL);
    pthread_mutex_init(&replica->receiving, NULL);
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        replica->peer[h].fd = -1;
    replica->rank = calloc((size_t)control->header->local, sizeof *replica->rank);
    AH_TRYGO(replica->rank ? 0 : ah_fail(AH_ENOMEM, "replication: out of memory"), failed);
    AH_TRYGO(ah_mesh_open(replica->hosts, "replication", timeout_ns, fd), failed);
    for (int h = 0; h < replica->hosts->count; h++) {
        replica->peer[h].fd = fd[h];
        replica->peer[h].in = fd[h] >= 0 ? malloc(2 * REPLICA_MOST) : NULL;
        if (fd[h] >= 0 && !replica->peer[h].in)
            status = AH_ENOMEM;
    }
    if (status < 0 || ah_helper_start(&replica->receiver, receive_frames, replica)) {
        status = ah_fail(AH_ENOMEM, "replication: out of memory");
        goto failed;
    }
    if (ah_helper_start(&replica->sender, send_changes, replica)) {
        atomic_store(&replica->ended, true);
        pthread_join(replica->receiver, NULL);
        status = ah_fail(AH_ENOMEM, "replication: cannot start its threads");
        goto failed;
    }
    atomic_store(&control->header->heartbeat_timeout_ns, replica->heartbeat_timeout_ns);
    *out = replica;
    return 0;
failed:
    free_replica(replica);
    return status;
}

void ah_replica_linger(struct ah_replica *replica)
{
    struct ah_control_block *control = replica->control;
    int first = control->header->first;
    if (atomic_load(&ah_rank_entry(control, first)->state) != AH_RANK_ENDED)
        return;
    ah_replica_leave(replica);
    while (!all_have_ended(control)) {
        struct ah_notification *notification = &control->header->notification[AH_REPLICA];
        uint32_t seen = atomic_load(&notification->changes);
        for (int r = first; r < first + control->header->local; r++)
            ah_control_lost(control, r);
        if (!all_have_ended(control))
            ah_notification_sleep(notification, seen, tick_ns);
    }
}

void ah_replica_part(struct ah_replica *replica)
{
    if (atomic_exchange(&replica->shutting_down, true))
        return;
    ah_replica_leave(replica);
    ah_notification_notify(&replica->control->header->notification[AH_REPLICA]);
    pthread_join(replica->sender, NULL);
    /* The others close their side when they have read the last frame; their frames until then are dropped. */
    for (int64_t begin = ah_now_ns(), open = 1; open && ah_now_ns() - begin < tick_ns; usleep(1000)) {
        open = 0;
        for (int h = 0; h < replica->hosts->count; h++)
            open += is_open(&replica->peer[h]);
    }
    atomic_store(&replica->ended, true);
    pthread_join(replica->receiver, NULL);
    atomic_store(&replica->control->header->heartbeat_timeout_ns, 0);
}

void ah_replica_close(struct ah_replica *replica)
{
    if (!replica)
        return;
    ah_replica_part(replica);
    free_replica(replica);
}
