/* A host whose Lua fails where nothing catches it. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/process/host.h"
#include "test.h"

static int out[2];

static void give_up(const char *text)
{
    if (write(out[1], text, strlen(text)) < 0)
        _exit(8);
    _exit(7);
}

/* The output of a child that fails so, and its exit status. */
static int fail_uncaught(const char *error, char *said, size_t room)
{
    if (pipe(out))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct ah_host host = {0};
        if (ah_host_open(&host, &(struct ah_host_options){.jit_off = true, .give_up = give_up}) < 0)
            _exit(9);
        lua_pushstring(host.lua, error);
        lua_error(host.lua);
        _exit(0);
    }
    close(out[1]);
    ssize_t bytes = read(out[0], said, room - 1);
    said[bytes > 0 ? bytes : 0] = 0;
    close(out[0]);
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

AH_TEST(an_uncaught_error_of_lua_ends_the_process_as_configured)
{
    char said[256];
    CHECK(fail_uncaught("train.lua:3: no way", said, sizeof said) == 7);
    CHECK(!strcmp(said, "train.lua:3: no way"));
    CHECK(fail_uncaught("not enough memory", said, sizeof said) == 7);
    CHECK(strstr(said, "not enough memory: Lua held ") == said && strstr(said, " MiB"));
}
