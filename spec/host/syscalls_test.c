/* Linux's calls that not every C library has. */
#include "cli/base/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

AH_TEST(syscalls_a_pidfd_reports_the_end_of_the_process_that_it_signals)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    REQUIRE(pid > 0);
    int fd = ah_pidfd_open(pid), status = 0;
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    CHECK(poll(&ended, 1, 0) == 0);
    CHECK(ah_pidfd_kill(fd, SIGTERM) == 0);
    CHECK(poll(&ended, 1, 10000) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    CHECK(ah_pidfd_kill(fd, 0) == -1 && errno == ESRCH);
    close(fd);
}

AH_TEST(syscalls_a_process_that_is_not_there_has_no_pidfd)
{
    errno = 0;
    CHECK(ah_pidfd_open(0x3fffffff) == -1 && errno == ESRCH);
}

AH_TEST(syscalls_close_from_leaves_what_is_below)
{
    pid_t pid = fork();
    if (pid == 0) {
        int low = open("/dev/null", O_RDONLY), high = fcntl(low, F_DUPFD, low + 5);
        ah_close_from(low + 1);
        _exit(fcntl(low, F_GETFD) >= 0 && fcntl(high, F_GETFD) < 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

AH_TEST(syscalls_signals_have_names)
{
    CHECK(!strcmp(ah_signal_name(SIGKILL), "SIGKILL"));
    CHECK(!strcmp(ah_signal_name(SIGSEGV), "SIGSEGV"));
    CHECK(!ah_signal_name(0) && !ah_signal_name(-1) && !ah_signal_name(1000));
}
