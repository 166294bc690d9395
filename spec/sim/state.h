/* The objects behind the handles of the driver API: devices, streams, events, modules, graphs.
 *
 * `api` is held by every call except while it waits; the threads of streams never lock it. Data shared between them and
 * the callers has separate locks: a stream's queue, an event's record, and `run`, which is held for any access to a
 * device's memory. */
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver_api.h"
#include "range.h"
#include "random.h"
#include "settings.h"
#include "sim.h"

namespace sim
{
/* The codes that the plugin's header has no name for. */
enum {
    ERROR_CONTEXT_IS_DESTROYED = 709,
    ERROR_STREAM_CAPTURE_MERGE = 902,
    ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    ERROR_STREAM_CAPTURE_UNJOINED = 904,
    ERROR_STREAM_CAPTURE_ISOLATION = 905,
    ERROR_CAPTURED_EVENT = 907,
    ERROR_STREAM_CAPTURE_WRONG_THREAD = 908
};

/* A moment in a stream that others wait for. */
struct Record {
    std::mutex lock;
    std::condition_variable reached;
    bool done = false;
    double when = 0; /* milliseconds */
    void reach();
    void wait();
    bool is_done();
};

/* The work of a stream's thread. `touches`: it needs the device's memory open, and is left out once the context is
 * broken. */
struct Work {
    std::function<void()> run;
    bool touches;
};

/* A block of device memory as it was when a graph was captured. */
struct Used {
    const void *at;
    size_t bytes;
    uint64_t number; /* of its allocation */
};

struct Graph {
    struct Node {
        Work work;
        std::vector<int> after;
    };
    std::vector<Node> nodes;
    std::vector<Used> used; /* those that its kernels have addresses of */
};

struct Capture {
    Graph graph;
    CUstream origin;
    int mode;
    std::thread::id thread;
    std::vector<CUstream> streams;
    bool broken = false, over = false;
};
} // namespace sim

/* A device and its primary context. */
struct CUctx_st {
    int index = 0, retained = 0;
    std::mutex run;
    sim::Range memory; /* under `run` */
    std::atomic<int> sticky{0};
    std::vector<CUstream> streams;
    std::set<int> peers; /* whose memory its copies and kernels reach directly */
    CUstream null_stream = nullptr;

    /* Break the context; the first error stays. Any thread. */
    void fail(int code, const std::string &text);
    /* Check guards, and freed memory if asked for; under `run`. */
    void check(bool freed, const std::string &after);
};

struct CUstream_st {
    CUcontext context;
    unsigned flags;
    int priority;
    std::shared_ptr<sim::Capture> capture;
    std::vector<int> last; /* nodes of the capture on which the next node depends */

    std::thread thread;
    std::mutex lock;
    std::condition_variable some, finished;
    std::deque<sim::Work> queue;
    uint64_t given = 0, done = 0;
    bool stop = false;
    sim::Random random;
};

struct CUevent_st {
    CUcontext context;
    unsigned flags;
    std::shared_ptr<sim::Record> record; /* null: never recorded */
    std::shared_ptr<sim::Capture> capture;
    std::vector<int> nodes; /* of the capture */
};

struct CUmod_st {
    CUcontext context;
    std::string file;
    std::vector<CUfunction> functions;
};

struct CUfunc_st {
    CUmodule module;
    const sim::Kernel *kernel;
    int dynamic_limit;
};

struct CUgraph_st {
    sim::Graph graph;
};

struct CUgraphExec_st {
    CUcontext context;
    sim::Graph graph;
};

namespace sim
{
extern std::mutex api;

/* The calls of the driver are counted by name (calls.cc). */
void count_call(const char *name = __builtin_FUNCTION());

/* Holds `api`, and counts the call in which it is. */
class Api
{
  public:
    explicit Api(std::mutex &lock, const char *name = __builtin_FUNCTION()) : hold_(lock)
    {
        count_call(name);
    }

  private:
    std::lock_guard<std::mutex> hold_;
};


/* The current context, or the reason why its calls fail: not initialised, none current, broken. */
int current(CUcontext *out);
/* The device of an ordinal. */
CUcontext device_at(int ordinal);
int device_count();
/* The device that owns an address; null when none does. */
CUcontext device_of(const void *at);
int bus_of(int device);

/* The stream of a handle (null: the context's own) and whether its context works. */
int stream_of(CUstream handle, CUstream *out);
CUstream stream_new(CUcontext context, unsigned flags, int priority);
void stream_end(CUstream stream);
/* Append to the queue, or to the graph that is captured. */
int stream_give(CUstream stream, Work work);
/* Wait for all given so far. */
void stream_wait(CUstream stream);

/* Around accesses to device memory outside a stream's thread. */
class Open
{
  public:
    explicit Open(CUcontext context);
    ~Open();

  private:
    CUcontext context_;
};

/* A call that a capture does not allow; breaks the captures it would disturb. */
int refuse_in_capture();
/* Is a host address in pinned memory? */
bool is_pinned(const void *at, size_t bytes);

/* Set the text of an error from now on; names kernel or call, and the seed. */
void report(int code, const std::string &text);
void faults_install();
void use_signal_stack();
} // namespace sim
