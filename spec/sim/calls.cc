/* The calls of the driver and of cuBLASLt, cuDNN and NCCL, counted by name, for specs that hold how many a step makes:
 * they ask for simulated_calls. The own calls of the library under `api` have other names, which are left out. */
#include <map>
#include <string.h>

#include "state.h"

namespace sim
{
static std::mutex &lock = *new std::mutex;
static std::map<std::string, long> &counts = *new std::map<std::string, long>;

void count_call(const char *name)
{
    if (strncmp(name, "cu", 2) && strncmp(name, "nccl", 4))
        return;
    std::lock_guard<std::mutex> hold(lock);
    counts[name]++;
}
} // namespace sim

/* "cuLaunchKernel 12\n..." so far, in text that lives until the next call. */
SIM_API const char *simulated_calls()
{
    static std::string &text = *new std::string;
    std::lock_guard<std::mutex> hold(sim::lock);
    text.clear();
    for (const auto &entry : sim::counts)
        text += entry.first + " " + std::to_string(entry.second) + "\n";
    return text.c_str();
}
