/* Compile one file of kernels by NVRTC, the compiler as a library (libnvrtc.so.12, libnvfatbin.so.12), where there is
 * no nvcc of that version: code for every architecture named, and PTX of the last.
 *
 * usage: nvrtc OUT.fatbin FILE.cu ARCHS [OPTION...]      ARCHS: "80 86 90"; OPTION: as nvcc's, -Ihost -fmad=false
 *        nvrtc --version                                 "12.9"
 *
 * NVRTC has no headers of a C library: those that kernels include are in this file. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS = 64 };

/* As nvrtc.h and nvFatbin.h declare them. */
static struct {
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *text, const char *name, int count, const char *const *headers,
                  const char *const *names);
    int (*compile)(void *program, int count, const char *const *options);
    int (*destroy)(void **program);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *text);
    int (*cubin_size)(void *program, size_t *size);
    int (*cubin)(void *program, char *code);
    int (*ptx_size)(void *program, size_t *size);
    int (*ptx)(void *program, char *code);
    int (*fat_create)(void **fat, const char **options, size_t count);
    int (*fat_cubin)(void *fat, const void *code, size_t size, const char *arch, const char *identifier);
    int (*fat_ptx)(void *fat, const char *code, size_t size, const char *arch, const char *identifier,
                   const char *options);
    int (*fat_size)(void *fat, size_t *size);
    int (*fat_get)(void *fat, void *out);
} api;

static const struct call {
    const char *library, *symbol;
    void *place;
} calls[] = {
    {"libnvrtc.so.12", "nvrtcVersion", &api.version},
    {"libnvrtc.so.12", "nvrtcCreateProgram", &api.create},
    {"libnvrtc.so.12", "nvrtcCompileProgram", &api.compile},
    {"libnvrtc.so.12", "nvrtcDestroyProgram", &api.destroy},
    {"libnvrtc.so.12", "nvrtcGetProgramLogSize", &api.log_size},
    {"libnvrtc.so.12", "nvrtcGetProgramLog", &api.log},
    {"libnvrtc.so.12", "nvrtcGetCUBINSize", &api.cubin_size},
    {"libnvrtc.so.12", "nvrtcGetCUBIN", &api.cubin},
    {"libnvrtc.so.12", "nvrtcGetPTXSize", &api.ptx_size},
    {"libnvrtc.so.12", "nvrtcGetPTX", &api.ptx},
    {"libnvfatbin.so.12", "nvFatbinCreate", &api.fat_create},
    {"libnvfatbin.so.12", "nvFatbinAddCubin", &api.fat_cubin},
    {"libnvfatbin.so.12", "nvFatbinAddPTX", &api.fat_ptx},
    {"libnvfatbin.so.12", "nvFatbinSize", &api.fat_size},
    {"libnvfatbin.so.12", "nvFatbinGet", &api.fat_get},
};

static const char *const header_names[] = {"stdint.h", "stddef.h", "stdbool.h", "math.h", "string.h"};
static const char *const headers[] = {
    "#pragma once\n"
    "typedef signed char int8_t;\ntypedef unsigned char uint8_t;\n"
    "typedef short int16_t;\ntypedef unsigned short uint16_t;\n"
    "typedef int int32_t;\ntypedef unsigned uint32_t;\n"
    "typedef long int64_t;\ntypedef unsigned long uint64_t;\n"
    "typedef long intptr_t;\ntypedef unsigned long uintptr_t;\n"
    "#define INT8_MAX 127\n#define INT8_MIN (-128)\n#define UINT8_MAX 255\n"
    "#define INT16_MAX 32767\n#define INT16_MIN (-32768)\n#define UINT16_MAX 65535\n"
    "#define INT32_MAX 2147483647\n#define INT32_MIN (-2147483647 - 1)\n#define UINT32_MAX 4294967295u\n"
    "#define INT64_MAX 9223372036854775807l\n#define INT64_MIN (-9223372036854775807l - 1)\n"
    "#define UINT64_MAX 18446744073709551615ul\n"
    "#define INT32_C(x) x\n#define UINT32_C(x) x##u\n#define INT64_C(x) x##l\n#define UINT64_C(x) x##ul\n",
    "#pragma once\n#define offsetof(type, field) __builtin_offsetof(type, field)\n",
    "#pragma once\n",
    "#pragma once\n#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n"
    "#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)\n"
    "#define M_E 2.7182818284590452354\n#define M_LN2 0.69314718055994530942\n"
    "#define M_PI 3.14159265358979323846\n#define M_PI_2 1.57079632679489661923\n"
    "#define M_1_PI 0.31830988618379067154\n#define M_2_SQRTPI 1.12837916709551257390\n"
    "#define M_SQRT2 1.41421356237309504880\n#define M_SQRT1_2 0.70710678118654752440\n",
    "#pragma once\n",
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return -1;
}

static int open_calls(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *library = dlopen(calls[i].library, RTLD_NOW | RTLD_GLOBAL);
        void *function = library ? dlsym(library, calls[i].symbol) : NULL;
        if (!function)
            return fail(calls[i].library, dlerror());
        memcpy(calls[i].place, &function, sizeof function);
    }
    return 0;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        rewind(file);
        text = calloc(1, (size_t)size + 1);
        if (text && fread(text, 1, (size_t)size, file) != (size_t)size) {
            free(text);
            text = NULL;
        }
    }
    if (file)
        fclose(file);
    return text;
}

/* Does code have the ELF ABI that drivers for CUDA 12 load, 0x33 version 7, or is it for cards from compute capability
 * 10.0 on, whose first drivers load the next one? */
static int is_loaded_by_cuda_12(const char *code, size_t size, int capability)
{
    return capability >= 100 || (size > 8 && !memcmp(code, "\177ELF", 4) && code[7] == 0x33 && code[8] == 7);
}

/* Compile for "sm_90" or, as PTX, "compute_90", and add the code to the image. */
static int compile(void *fat, const char *path, const char *text, const char *target, const char **options, int count)
{
    char architecture[64];
    void *program;
    size_t size = 0;
    int is_ptx = target[0] == 'c';
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", target);
    options[count] = architecture;
    if (api.create(&program, text, path, (int)(sizeof headers / sizeof headers[0]), headers, header_names) != 0)
        return fail(path, "no program");
    int failed = api.compile(program, count + 1, options);
    api.log_size(program, &size);
    char *log = calloc(1, size + 1);
    if (log && size > 1 && api.log(program, log) == 0 && (failed || strstr(log, "warning")))
        fputs(log, stderr);
    free(log);
    if (failed || (is_ptx ? api.ptx_size : api.cubin_size)(program, &size) != 0)
        return fail(path, target);
    char *code = malloc(size);
    failed = !code || (is_ptx ? api.ptx : api.cubin)(program, code) != 0;
    const char *number = strchr(target, '_') + 1;
    if (!failed && !is_ptx && !is_loaded_by_cuda_12(code, size, atoi(number)))
        failed = fail(target, "the compiler makes code that drivers for CUDA 12 do not load") < 0;
    if (!failed)
        failed = is_ptx ? api.fat_ptx(fat, code, size, number, path, "") : api.fat_cubin(fat, code, size, number, path);
    free(code);
    api.destroy(&program);
    return failed ? fail(path, "its code does not go into an image") : 0;
}

static int write_image(void *fat, const char *path)
{
    size_t size;
    if (api.fat_size(fat, &size) != 0)
        return fail(path, "no image");
    void *image = malloc(size);
    FILE *file = fopen(path, "wb");
    int failed = !image || !file || api.fat_get(fat, image) != 0 || fwrite(image, 1, size, file) != size;
    failed = (file && fclose(file) != 0) || failed;
    free(image);
    return failed ? fail(path, "not written") : 0;
}

int main(int argc, char **argv)
{
    int major, minor, count = 0;
    if (open_calls() < 0)
        return 1;
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return api.version(&major, &minor) != 0 || printf("%d.%d\n", major, minor) < 0;
    if (argc < 4 || argc > OPTIONS)
        return 2;
    const char *options[OPTIONS];
    for (int i = 4; i < argc; i++)
        options[count++] = argv[i];
    void *fat;
    const char *fat_options[] = {"-64", "-compress-mode=size"};
    char *text = read_file(argv[2]), target[32] = "";
    if (!text || api.fat_create(&fat, fat_options, 2) != 0)
        return fail(argv[2], "not read") < 0;
    int status = 0;
    for (char *arch = strtok(argv[3], " "); status == 0 && arch; arch = strtok(NULL, " ")) {
        snprintf(target, sizeof target, "sm_%s", arch);
        status = compile(fat, argv[2], text, target, options, count);
    }
    char last[48];
    snprintf(last, sizeof last, "compute_%s", target + 3);
    if (status == 0)
        status = compile(fat, argv[2], text, last, options, count);
    return status < 0 || write_image(fat, argv[1]) < 0;
}
