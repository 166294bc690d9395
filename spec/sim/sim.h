/* The subset of CUDA C++ that the kernels keep to, for the host's compiler (host/cuda/README.md states the subset).
 *
 * A kernel compiled with this header runs in the engine (engine.h): its blocks one after another, a block's threads as
 * fibers that change places where they wait for each other. Undefined behaviour of a card is an error here that names
 * kernel, block and thread: a barrier that not all threads reach, a shuffle whose mask names lanes that do not arrive,
 * a 16-byte access that is not aligned, shared memory written out of its bounds. Shared memory is 0xff before each
 * block, and so is the value that a shuffle returns from a lane outside its mask. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

#include "sim_types.h"

/* Known to need no code at its first use. */
#ifdef __clang__
#define AH_SIM_CONSTANT [[clang::require_constant_initialization]]
#else
#define AH_SIM_CONSTANT __constinit
#endif
#ifdef __GLIBC__
#define AH_SIM_TLS __attribute__((tls_model("initial-exec")))
#else
#define AH_SIM_TLS
#endif

namespace sim
{
class Engine;

/* The place of the running fiber: threadIdx and its kin. */
struct Here {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    Engine *engine; /* null outside a kernel */
};
AH_SIM_CONSTANT extern thread_local Here here AH_SIM_TLS;

/* A line of a kernel. */
struct Site {
    const char *file;
    int line;
};

/* The calls in which a thread waits for others. */
enum Meeting {
    SYNC_THREADS,
    SYNC_THREADS_OR,
    SYNC_THREADS_AND,
    SYNC_THREADS_COUNT,
    SYNC_WARP,
    BALLOT,
    ANY,
    ALL,
    SHUFFLE,
    SHUFFLE_UP,
    SHUFFLE_DOWN,
    SHUFFLE_XOR,
    MATRIX_LOAD,
    MATRIX_MULTIPLY
};

/* Wait for all threads of the block; return the result of the votes. */
int meet_block(Meeting kind, int vote, Site site);
/* Wait for the lanes that the mask names; the value that is this lane's. */
uint64_t meet_warp(Meeting kind, unsigned mask, uint64_t value, int argument, int width, Site site);
/* Wait for all lanes of the warp; then `together` is called once, with the lanes' values. */
void meet_together(Meeting kind, void (*together)(void *const *lanes), void *mine, Site site);
/* Drawn; one and the other in a kernel that runs twice. */
bool chance();

/* An AH_SHARED in the source. */
struct Shared_site {
    const char *name;
    Site site;
};
void *shared_object(const Shared_site *site, size_t bytes, size_t alignment);
void *shared_dynamic(size_t alignment);

[[noreturn]] void misaligned(const void *address);
[[noreturn]] void too_many_copies(int most);

struct Kernel {
    const char *name, *file; /* the .cu file */
    void (*run)(const void *arguments);
    size_t argument_bytes;
    unsigned max_threads;
    const Kernel *next;
    Kernel(const char *its_name, const char *its_file, void (*its_run)(const void *), size_t bytes, unsigned threads);
};

/* T, also where it is an array: same<float[32]> &x. */
template <class T> using same = T;

template <class T> uint64_t bits_of(T value)
{
    static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T> T value_of(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
} // namespace sim

#define threadIdx (sim::here.thread)
#define blockIdx (sim::here.block)
#define blockDim (sim::here.block_dim)
#define gridDim (sim::here.grid_dim)
#define warpSize 32

#define AH_KERNEL(name, arguments, max_threads)                                                                        \
    static void name(const arguments &a);                                                                              \
    static void name##_run(const void *from)                                                                           \
    {                                                                                                                  \
        name(*static_cast<const arguments *>(from));                                                                   \
    }                                                                                                                  \
    static const sim::Kernel name##_kernel(#name, __BASE_FILE__, name##_run, sizeof(arguments), max_threads);          \
    static void name(const arguments &a)

#define AH_SHARED(type, name)                                                                                          \
    static const sim::Shared_site name##_site = {#name, {__FILE__, __LINE__}};                                         \
    sim::same<type> &name = *static_cast<sim::same<type> *>(                                                           \
        sim::shared_object(&name##_site, sizeof(sim::same<type>), alignof(sim::same<type>)))

#define AH_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(sim::shared_dynamic(alignof(type)))

#define AH_SIM_SITE int line = __builtin_LINE(), const char *file = __builtin_FILE()

static inline void __syncthreads(AH_SIM_SITE)
{
    sim::meet_block(sim::SYNC_THREADS, 0, {file, line});
}
static inline int __syncthreads_or(int vote, AH_SIM_SITE)
{
    return sim::meet_block(sim::SYNC_THREADS_OR, vote, {file, line});
}
static inline int __syncthreads_and(int vote, AH_SIM_SITE)
{
    return sim::meet_block(sim::SYNC_THREADS_AND, vote, {file, line});
}
static inline int __syncthreads_count(int vote, AH_SIM_SITE)
{
    return sim::meet_block(sim::SYNC_THREADS_COUNT, vote, {file, line});
}
static inline void __syncwarp(unsigned mask = 0xffffffff, AH_SIM_SITE)
{
    sim::meet_warp(sim::SYNC_WARP, mask, 0, 0, 32, {file, line});
}
static inline unsigned __ballot_sync(unsigned mask, int vote, AH_SIM_SITE)
{
    return (unsigned)sim::meet_warp(sim::BALLOT, mask, vote != 0, 0, 32, {file, line});
}
static inline int __any_sync(unsigned mask, int vote, AH_SIM_SITE)
{
    return (int)sim::meet_warp(sim::ANY, mask, vote != 0, 0, 32, {file, line});
}
static inline int __all_sync(unsigned mask, int vote, AH_SIM_SITE)
{
    return (int)sim::meet_warp(sim::ALL, mask, vote != 0, 0, 32, {file, line});
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32, AH_SIM_SITE)
{
    return sim::value_of<T>(
        sim::meet_warp(sim::SHUFFLE, mask, sim::bits_of(value), lane, width, {file, line}));
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, AH_SIM_SITE)
{
    return sim::value_of<T>(
        sim::meet_warp(sim::SHUFFLE_UP, mask, sim::bits_of(value), (int)by, width, {file, line}));
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, AH_SIM_SITE)
{
    return sim::value_of<T>(
        sim::meet_warp(sim::SHUFFLE_DOWN, mask, sim::bits_of(value), (int)by, width, {file, line}));
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, AH_SIM_SITE)
{
    return sim::value_of<T>(
        sim::meet_warp(sim::SHUFFLE_XOR, mask, sim::bits_of(value), with, width, {file, line}));
}

/* 16 bytes of T at a multiple of 16 (kernel.cuh has the struct). */
template <typename T> struct ah_pack;

template <typename T> inline ah_pack<T> ah_load16(const T *from)
{
    if ((uintptr_t)from % 16)
        sim::misaligned(from);
    ah_pack<T> pack;
    memcpy(&pack, from, 16);
    return pack;
}
template <typename T> inline void ah_store16(T *to, const ah_pack<T> &pack)
{
    if ((uintptr_t)to % 16)
        sim::misaligned(to);
    memcpy(to, &pack, 16);
}

#include "sim_atomic.h"
#include "sim_half.h"
#include "sim_math.h"
