/* The simulator's own tests: TEST("sentence") { ... CHECK(...) ... }. */
#pragma once

#include <string>
#include <vector>

#include "sim/driver_api.h"
#include "sim/planted/planted.h"

namespace test
{
struct Case {
    const char *sentence;
    void (*run)();
    Case *next;
    Case(const char *its_sentence, void (*its_run)());
};

void failed(const char *file, int line, const std::string &what);

/* A device with a stream, opened for a test and closed with it: errors do not outlive it. */
struct Device {
    CUcontext context;
    CUstream stream;
    int index;
    std::vector<CUmodule> modules;
    explicit Device(int index = 0);
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    float *floats(size_t n);
    float *floats(const std::vector<float> &values);
    std::vector<float> read(const float *from, size_t n);
    CUfunction function(const char *file, const char *name);
    /* Launch by name, in the planted kernels' arguments. */
    CUresult launch(const char *file, const char *name, const planted_args &args, unsigned blocks, unsigned threads,
                    CUstream on = nullptr);
    CUresult wait();
};

/* The driver's text of a code. */
std::string text_of(CUresult code);

/* Set a variable of the simulator's environment for the rest of a block. */
struct Setting {
    std::string name;
    Setting(const char *its_name, const char *value);
    ~Setting();
};

/* Run this program again with one case; its standard error and exit status (128 + signal). */
int run_apart(const char *sentence, std::string *said);
} // namespace test

#define TEST_NAME2(line) test_##line
#define TEST_NAME(line) TEST_NAME2(line)
#define TEST_CASE2(line) case_##line
#define TEST_CASE(line) TEST_CASE2(line)
#define TEST(sentence)                                                       \
    static void TEST_NAME(__LINE__)();                                       \
    static test::Case TEST_CASE(__LINE__)(sentence, TEST_NAME(__LINE__));    \
    static void TEST_NAME(__LINE__)()

#define CHECK(condition)                                  \
    do {                                                  \
        if (!(condition))                                 \
            test::failed(__FILE__, __LINE__, #condition); \
    } while (0)
#define CHECK_SAYS(text, part)                                                                 \
    do {                                                                                       \
        std::string said_ = text;                                                              \
        if (said_.find(part) == std::string::npos)                                             \
            test::failed(__FILE__, __LINE__, std::string("\"") + said_ + "\" has no \"" + (part) + "\""); \
    } while (0)
