/* Runs the simulator's tests: all, those whose sentence has a given part, or (--list) none. A sentence that begins with
 * "apart:" is run by another test only, in a separate process. */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/settings.h"

namespace test
{
static Case *first, **last = &first;
static int failures;

Case::Case(const char *its_sentence, void (*its_run)()) : sentence(its_sentence), run(its_run), next(nullptr)
{
    *last = this;
    last = &next;
}

void failed(const char *file, int line, const std::string &what)
{
    failures++;
    printf("  %s:%d: %s\n", file, line, what.c_str());
}

Device::Device(int its_index) : index(its_index)
{
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, index);
    cuCtxSetCurrent(context);
    CHECK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == 0);
}

Device::~Device()
{
    cuDevicePrimaryCtxRelease_v2(index);
    /* Their kernels run until then. */
    for (CUmodule module : modules)
        cuModuleUnload(module);
}

float *Device::floats(size_t n)
{
    CUdeviceptr block = 0;
    CHECK(cuMemAlloc_v2(&block, n * sizeof(float)) == 0);
    return reinterpret_cast<float *>(block);
}

float *Device::floats(const std::vector<float> &values)
{
    float *block = floats(values.size());
    CHECK(cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(block), values.data(), values.size() * sizeof(float),
                               stream) == 0);
    return block;
}

std::vector<float> Device::read(const float *from, size_t n)
{
    std::vector<float> values(n);
    CUresult code = cuMemcpyDtoHAsync_v2(values.data(), reinterpret_cast<CUdeviceptr>(from), n * sizeof(float), stream);
    if (code)
        failed(__FILE__, __LINE__, text_of(code));
    return values;
}

CUfunction Device::function(const char *file, const char *name)
{
    CUmodule module = nullptr;
    CUfunction found = nullptr;
    CHECK(cuModuleLoadData(&module, file) == 0);
    modules.push_back(module);
    CHECK(cuModuleGetFunction(&found, module, name) == 0);
    return found;
}

CUresult Device::launch(const char *file, const char *name, const planted_args &args, unsigned blocks, unsigned threads,
                        CUstream on)
{
    planted_args copy = args;
    void *params[] = {&copy};
    return cuLaunchKernel(function(file, name), blocks, 1, 1, threads, 1, 1, 0, on ? on : stream, params, nullptr);
}

CUresult Device::wait()
{
    return cuStreamSynchronize(stream);
}

std::string text_of(CUresult code)
{
    const char *text = nullptr;
    cuGetErrorString(code, &text);
    return text ? text : "no text";
}

Setting::Setting(const char *its_name, const char *value) : name(its_name)
{
    setenv(its_name, value, 1);
    sim::settings_read();
}

Setting::~Setting()
{
    unsetenv(name.c_str());
    sim::settings_read();
}

int run_apart(const char *sentence, std::string *said)
{
    int ends[2];
    if (pipe(ends))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        if (!freopen("/dev/null", "w", stdout))
            _exit(126);
        close(ends[0]);
        execl("/proc/self/exe", "sim-selftest", sentence, (char *)nullptr);
        _exit(127);
    }
    close(ends[1]);
    char buffer[4096];
    ssize_t got;
    said->clear();
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR))
        said->append(buffer, got > 0 ? (size_t)got : 0);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_all(const char *part)
{
    int passed = 0, broken = 0;
    for (Case *each = first; each; each = each->next) {
        bool apart = strncmp(each->sentence, "apart:", 6) == 0;
        if (part ? !strstr(each->sentence, part) : apart)
            continue;
        if (apart && strcmp(each->sentence, part))
            continue;
        failures = 0;
        each->run();
        printf("%s %s\n", failures ? "FAILED" : "ok", each->sentence);
        fflush(stdout);
        passed += failures == 0;
        broken += failures != 0;
    }
    printf("seed %llu\n%d passed, %d failed\n", (unsigned long long)sim::settings.seed, passed, broken);
    return broken || !passed;
}

static void list()
{
    for (Case *each = first; each; each = each->next)
        if (strncmp(each->sentence, "apart:", 6))
            printf("%s\n", each->sentence);
}
} // namespace test

int main(int count, char **words)
{
    setenv("ACCELHOST_SIM_MEMORY", "64MiB", 0);
    if (count > 1 && strcmp(words[1], "--list") == 0) {
        test::list();
        return 0;
    }
    return test::run_all(count > 1 ? words[1] : nullptr);
}
