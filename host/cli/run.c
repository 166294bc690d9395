/* accelhost [run] script.lua args...: one rank, or a whole run in one process. Opens a host (cli/host.h), runs the
 * script in it and ends the process; what must stay true is that each way out passes `finish`, so that what could not
 * be written is never lost in silence. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

#include "base/status.h"
#include "base/tell.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/host.h"
#include "cli/inquiry.h"
#include "cli/interrupt.h"
#include "cli/parent.h"
#include "cli/script.h"
#include "comm/rank.h"
#include "io/saver.h"
#include "tensor/device.h"

struct run_options {
    bool jit_off, gc_stress;
    double max_memory, script_fd;
};

#define FIELD(name) offsetof(struct run_options, name)
static const struct ah_flag flags[] = {
    {"--jit", AH_FLAG_ON_OFF, FIELD(jit_off), .value = "on|off", .help = "LuaJIT's compiler (default on)"},
    {"--gc-stress", AH_FLAG_SWITCH, FIELD(gc_stress),
     .help = "collect garbage at every tensor op (finds lifetime errors)"},
    {"--max_memory", AH_FLAG_VALUE, FIELD(max_memory), {.kind = AH_VALUE_BYTES, 1 << 20, 1e15}, "SIZE",
     "memory that the script may take, such as 2G"},
    {"--script_fd", AH_FLAG_VALUE, FIELD(script_fd), {.kind = AH_VALUE_WHOLE, 0, 1e6}, "FD",
     "read the script's text from an open file"},
};
enum { FLAGS = sizeof flags / sizeof *flags };

static void print_help(void)
{
    puts("usage: accelhost [run] [options] script.lua [arguments]\n"
         "       accelhost [run] [options] -e CODE [arguments]\n"
         "       accelhost [run] [options] -m MODULE [arguments]\n\n"
         "Runs a Lua script in this process. Arguments after the script are its own (the global `arg`).\n"
         "A script named - is read from stdin; -m runs the file that require would load for the name.\n\noptions:");
    ah_flags_print(flags, FLAGS);
    puts("\nexit codes: 0 ok, 1 script error, 2 usage");
}

/* With ACCELHOST_CLOSE the state is closed at the end, whichever way the script leaves. The end of the process frees
 * the same; a search for leaks wants to see it done. */
static bool closes(void)
{
    return getenv("ACCELHOST_CLOSE") != NULL;
}

/* Whether everything that was written has reached the system: a full disk shows at the flush, a remote one at close. */
static bool is_written(void)
{
    bool written = fflush(NULL) == 0 && !ferror(stdout) && !ferror(stderr);
    int fd = dup(STDOUT_FILENO);
    return (fd < 0 || close(fd) == 0) && written;
}

static int fail(struct ah_host *host, const char *text);

static int finish(struct ah_host *host, int code)
{
    /* What is still being saved is part of the run. */
    if (ah_saver_finish_all(code == 0) < 0 && code == 0)
        return fail(host, ah_error_text());
    if (!is_written() && code == 0) {
        fputs("accelhost: could not write all that the script printed\n", stderr);
        code = 1;
    }
    if (!ah_board_report_end() && code == 0)
        code = 1;
    if (closes()) {
        ah_inquiry_end();
        ah_host_close(host);
        ah_device_close_all();
        exit(code);
    }
    _exit(code);
}

static int fail(struct ah_host *host, const char *text)
{
    fflush(stdout);
    if (!ah_board_report_failure(text, false))
        fprintf(stderr, "%s\n", text);
    return finish(host, 1);
}

/* The state cannot be closed any more. */
static void give_up(const char *text)
{
    fail(&(struct ah_host){NULL}, text);
}

static void tell(const char *line)
{
    fflush(stdout);
    fprintf(stderr, "accelhost: %s\n", line);
}

/* os.exit([code]): true and nil mean 0, false 1. Upvalue: the host. */
static int os_exit(lua_State *L)
{
    int code = lua_isboolean(L, 1) ? !lua_toboolean(L, 1) : luaL_optint(L, 1, 0);
    return finish(lua_touserdata(L, lua_upvalueindex(1)), code);
}

static int replace_os_exit(lua_State *L)
{
    lua_getglobal(L, "os");
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, os_exit, 1);
    lua_setfield(L, -2, "exit");
    return 0;
}

/* Limit what this process may take for itself beyond what the program has already: its heaps, not what ranks share. */
static int limit_memory(double bytes)
{
    struct rlimit limit;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    /* size resident shared text lib data */
    if (file && fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    if (getrlimit(RLIMIT_DATA, &limit))
        return ah_fail(AH_EIO, "--max_memory: %s", strerror(errno));
    double wanted = bytes + (double)pages * (double)sysconf(_SC_PAGESIZE);
    if (limit.rlim_cur == RLIM_INFINITY || wanted < (double)limit.rlim_cur)
        limit.rlim_cur = (rlim_t)wanted;
    if (setrlimit(RLIMIT_DATA, &limit))
        return ah_fail(AH_EIO, "--max_memory: %s", strerror(errno));
    return 0;
}

/* The text of the file behind a descriptor that other processes may be reading too; the caller frees it. */
static int read_descriptor(int fd, char **out, size_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info))
        return ah_fail(AH_EIO, "--script_fd %d: %s", fd, strerror(errno));
    char *text = malloc((size_t)info.st_size + 1);
    if (!text)
        return ah_fail(AH_ENOMEM, "out of memory");
    size_t have = 0;
    while (have < (size_t)info.st_size) {
        ssize_t n = pread(fd, text + have, (size_t)info.st_size - have, (off_t)have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    *out = text;
    *bytes = have;
    return 0;
}

static int run_descriptor(struct ah_host *host, int fd, const char *name, int argc, char **argv)
{
    char *text = NULL, chunk[256];
    size_t bytes = 0;
    AH_TRY(read_descriptor(fd, &text, &bytes));
    snprintf(chunk, sizeof chunk, strcmp(name, "-") ? "@%s" : "=stdin", name);
    /* As from a file: a first line that begins with # is passed over. */
    size_t skip = 0;
    while (bytes && text[0] == '#' && skip < bytes && text[skip] != '\n')
        skip++;
    int status = ah_host_run_text(host, text + skip, bytes - skip, chunk, argc, argv);
    free(text);
    return status;
}

static int run(struct ah_host *host, const struct run_options *options, int argc, char **argv)
{
    if (!strcmp(argv[0], "-e")) {
        AH_TRY(ah_host_set_arguments(host, "-e", argc - 2, argv + 2));
        return ah_host_run_text(host, argv[1], strlen(argv[1]), "=-e", argc - 2, argv + 2);
    }
    AH_TRY(ah_host_set_arguments(host, argv[0], argc - 1, argv + 1));
    if (options->script_fd >= 0)
        return run_descriptor(host, (int)options->script_fd, argv[0], argc - 1, argv + 1);
    return ah_host_run_file(host, argv[0], argc - 1, argv + 1);
}

int ah_cli_run(int argc, char **argv)
{
    struct run_options options = {.script_fd = -1};
    struct ah_board *board;
    struct ah_host host = {0};
    char module[4096];
    int status = 0, first = ah_flags_read("run", flags, FLAGS, print_help, argc, argv, &options);
    if (first < 0)
        return -1 - first;
    argc -= first;
    argv += first;
    if (options.script_fd < 0 && ah_script_check("run", argc, argv))
        return 2;
    ah_tell_to(tell);
    AH_TRYGO(ah_board_attach(&board), failed);
    AH_TRYGO(ah_parent_attach(), failed);
    struct ah_host_options settings = {options.jit_off, options.gc_stress, give_up};
    AH_TRYGO(ah_host_open(&host, &settings), failed);
    if (options.max_memory > 0)
        AH_TRYGO(limit_memory(options.max_memory), failed);
    if (lua_cpcall(host.lua, replace_os_exit, &host))
        return fail(&host, lua_tostring(host.lua, -1));
    if (!board) {
        ah_board_show_alone();
        ah_interrupt_watch(host.lua);
    }
    ah_inquiry_watch(host.lua);
    if (options.script_fd < 0 && ah_script_is_module(argv[0])) {
        if (ah_host_find_module(&host, argv[1], module, sizeof module) < 0)
            return finish(&host, ah_usage("run", "%s", ah_error_text()));
        *++argv = module;
        argc--;
    }
    status = run(&host, &options, argc, argv);
    if (status == AH_ELUA)
        return fail(&host, ah_host_error(&host));
    if (status < 0)
        return fail(&host, ah_error_text());
    return finish(&host, 0);
failed:
    fprintf(stderr, "accelhost: %s\n", ah_error_text());
    return 1;
}
