/* The segment of a communicator: a file of shared memory that is removed as soon as all ranks have mapped it. Waiting
 * is looking again, with short sleeps, since a peer may be a process that has ended. */
#include "nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace sim
{
Link::Link(const std::string &name, int its_ranks, int its_rank, CUcontext its_context)
    : ranks(its_ranks), rank(its_rank), context(its_context), name_(name)
{
}

Link::~Link()
{
    if (!segment_)
        return;
    segment_->rank[rank].state = 2;
    munmap(segment_, bytes_);
}

char *Link::chunk(int of) const
{
    return reinterpret_cast<char *>(segment_ + 1) + (size_t)of * CHUNK;
}

Box *Link::box(int from, int to) const
{
    return reinterpret_cast<Box *>(chunk(ranks)) + from * ranks + to;
}

void Link::fail(int code, const std::string &text)
{
    report(LAST_OF_NCCL, text);
    int none = ncclSuccess, setting_up = ncclInProgress;
    if (!error.compare_exchange_strong(none, code))
        error.compare_exchange_strong(setting_up, code);
}

bool Link::pause()
{
    struct timespec time = {0, 20000};
    if (++pauses_ % 8 == 0)
        nanosleep(&time, nullptr);
    else
        std::this_thread::yield();
    return !aborted;
}

/* The namespace in which processes have numbers, as a number: another one is another host (scripts/testhosts). */
static uint64_t own_host()
{
    static const uint64_t host = [] {
        struct stat about;
        return stat("/proc/self/ns/pid", &about) ? (uint64_t)0 : (uint64_t)about.st_ino;
    }();
    return host;
}

/* The file of a segment in a folder that hosts share; empty where it is in the host's shared memory. */
static std::string path_of(const std::string &name)
{
    const char *folder = getenv("ACCELHOST_SIM_LINKS");
    return folder && *folder ? folder + name : "";
}

int Link::open_segment() const
{
    std::string path = path_of(name_);
    return path.empty() ? shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                        : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

void Link::remove_segment() const
{
    std::string path = path_of(name_);
    if (path.empty())
        shm_unlink(name_.c_str());
    else
        unlink(path.c_str());
}

bool Link::is_own(int peer) const
{
    return segment_->rank[peer].process == getpid() && segment_->rank[peer].host == own_host();
}

/* A zombie has ended too, which only its descriptor shows. */
static bool has_ended(int process)
{
    int descriptor = (int)syscall(SYS_pidfd_open, process, 0);
    if (descriptor < 0)
        return errno == ESRCH;
    struct pollfd look = {descriptor, POLLIN, 0};
    bool ended = poll(&look, 1, 0) > 0;
    close(descriptor);
    return ended;
}

bool Link::is_gone(int peer) const
{
    const Shared_rank &other = segment_->rank[peer];
    return other.state == 2 || (other.state == 1 && other.host == own_host() && other.process != getpid() &&
                                has_ended(other.process));
}

void Link::lose(int peer)
{
    fail(ncclRemoteError, "rank " + std::to_string(peer) + " has ended or left while rank " + std::to_string(rank) +
                              " waited for it");
}

void Link::wait_for_abort()
{
    while (pause())
        ;
}

void Link::meet()
{
    if (fault_now(FAULT_INIT))
        raise(SIGKILL);
    int file = open_segment();
    bytes_ = sizeof(Segment) + (size_t)ranks * CHUNK + (size_t)(ranks * ranks) * sizeof(Box);
    void *memory = MAP_FAILED;
    if (file >= 0 && !ftruncate(file, (off_t)bytes_))
        memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (memory == MAP_FAILED)
        return fail(ncclSystemError, "no shared memory for a communicator");
    segment_ = static_cast<Segment *>(memory);
    Shared_rank &mine = segment_->rank[rank];
    int none = 0;
    if (!segment_->ranks.compare_exchange_strong(none, ranks) && none != ranks)
        return fail(ncclInvalidArgument, "ranks differ in how many there are");
    mine.process = getpid();
    mine.host = own_host();
    mine.device = bus_of(context->index);
    if (mine.state.exchange(1))
        return fail(ncclInvalidUsage, "rank " + std::to_string(rank) + " is here twice");
    segment_->here++;
    while (segment_->here < ranks && error == ncclInProgress) {
        for (int i = 0; i < ranks; i++)
            if (is_gone(i))
                lose(i);
        if (!pause())
            break;
    }
    remove_segment();
    for (int i = 0; i < ranks && segment_->here >= ranks; i++)
        if (i != rank && segment_->rank[i].device == mine.device && segment_->rank[i].host == mine.host)
            fail(ncclInvalidUsage, "Duplicate GPU detected: ranks " + std::to_string(rank) + " and " +
                                       std::to_string(i) + " both on cuda:" + std::to_string(context->index));
    int setting_up = ncclInProgress;
    error.compare_exchange_strong(setting_up, aborted ? ncclInternalError : ncclSuccess);
}

void Link::begin_connect()
{
    if (connecting_)
        return;
    connecting_ = true;
    if (fault_now(FAULT_CONNECT)) /* a rank that is stopped there */
        raise(SIGSTOP);
    segment_->connecting++;
}

bool Link::connect()
{
    for (int i = 0; i < ranks; i++)
        if (i != rank && is_own(i)) /* one thread calls for both, one after the other */
            return true;
    while (connecting_ && segment_->connecting < ranks)
        if (!pause())
            return false;
    return true;
}

bool Link::arrive()
{
    uint64_t step = ++segment_->rank[rank].step;
    for (unsigned turn = 0;; turn++) {
        bool all = true, looks = turn % 64 == 63;
        for (int i = 0; i < ranks; i++) {
            /* First this: it may have arrived and then left. */
            bool gone = looks && is_gone(i);
            bool came = segment_->rank[i].step >= step;
            all = all && came;
            if (gone && !came)
                lose(i);
        }
        if (all)
            return true;
        if (!pause())
            return false;
    }
}

bool Link::post(const Posted &mine)
{
    static const char *const names[] = {"AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter"};
    segment_->rank[rank].posted = mine;
    if (!arrive())
        return false;
    bool same = true;
    for (int i = 0; i < ranks; i++) {
        const Posted &other = segment_->rank[i].posted;
        if (other.call == mine.call && other.type == mine.type && other.op == mine.op && other.root == mine.root &&
            other.count == mine.count)
            continue;
        same = false;
        fail(ncclInternalError, std::string("rank ") + std::to_string(rank) + " is at " + names[mine.call] + " of " +
                                    std::to_string(mine.count) + " items, rank " + std::to_string(i) + " at " +
                                    names[other.call] + " of " + std::to_string(other.count) +
                                    ", or their types, operations or roots differ");
    }
    if (!arrive())
        return false;
    if (!same)
        wait_for_abort();
    return same;
}
} // namespace sim
