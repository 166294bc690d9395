/* NVTX: the ranges of each thread as text, for specs that ask for simulated_ranges: "mul(add)" is a range within one. */
#include <mutex>
#include <string>

#include "sim.h"
#include "state.h"

namespace sim
{
static std::mutex &ranges_lock = *new std::mutex;
static std::string &ranges = *new std::string;
static thread_local int depth;
} // namespace sim

SIM_API int nvtxRangePushA(const char *message)
{
    std::lock_guard<std::mutex> hold(sim::ranges_lock);
    sim::ranges += std::string(message) + "(";
    return sim::depth++;
}

SIM_API int nvtxRangePop()
{
    std::lock_guard<std::mutex> hold(sim::ranges_lock);
    if (sim::depth == 0) {
        sim::ranges += "a pop without a push ";
        return -1;
    }
    sim::ranges += ")";
    return --sim::depth;
}

/* So far, in text that lives until the next range. */
SIM_API const char *simulated_ranges()
{
    std::lock_guard<std::mutex> hold(sim::ranges_lock);
    return sim::ranges.c_str();
}
