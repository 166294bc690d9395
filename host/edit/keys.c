/* Signals are blocked while a line is edited and delivered only in the wait for a key; another thread that receives one
 * forwards it to this thread. Ctrl-C ends the line, Ctrl-Z restores the terminal's settings before the process stops,
 * and a change of the window's size redraws the line. */
#include "edit/keys.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

static const int numbers[] = {SIGINT, SIGTSTP, SIGWINCH, SIGQUIT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof numbers / sizeof *numbers };

static EditLine *keys_editor;
static pid_t keys_thread;
static sigset_t actions_before, keys_waiting;
static struct sigaction actions[SIGNALS];
static volatile sig_atomic_t interrupted, resized, stopped, deadly;

static void on_signal(int number)
{
    int error = errno;
    if (syscall(SYS_gettid) != keys_thread)
        syscall(SYS_tgkill, getpid(), keys_thread, number);
    else if (number == SIGINT)
        interrupted = 1;
    else if (number == SIGWINCH)
        resized = 1;
    else if (number == SIGTSTP)
        stopped = 1;
    else
        deadly = number;
    errno = error;
}

static void mark_pastes(bool on)
{
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* Until the shell continues it. */
static void keys_stop(void)
{
    sigset_t one;
    struct sigaction own, plain = {.sa_handler = SIG_DFL};
    el_set(keys_editor, EL_PREP_TERM, 0);
    mark_pastes(false);
    sigaction(SIGTSTP, &plain, &own);
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    sigprocmask(SIG_BLOCK, &one, NULL);
    sigaction(SIGTSTP, &own, NULL);
    mark_pastes(true);
    el_set(keys_editor, EL_PREP_TERM, 1);
    resized = 1;
}

/* One byte; 0 at the end of the input, -1 when a signal ends the line. */
static int next_byte(char *byte)
{
    for (;;) {
        struct pollfd at = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = ppoll(&at, 1, NULL, &keys_waiting);
        if (interrupted || deadly)
            return -1;
        if (stopped) {
            stopped = 0;
            keys_stop();
        }
        if (resized) {
            resized = 0;
            el_resize(keys_editor);
            el_set(keys_editor, EL_REFRESH);
            fflush(stdout);
        }
        if (ready <= 0)
            continue;
        ssize_t n = read(STDIN_FILENO, byte, 1);
        if (n >= 0)
            return (int)n;
        if (errno != EINTR && errno != EAGAIN)
            return 0;
    }
}

/* A character; bytes that are none are passed over. */
static int next_key(EditLine *edit, wchar_t *key)
{
    mbstate_t state = {0};
    char byte;
    for (;;) {
        int got = next_byte(&byte);
        if (got <= 0) {
            errno = EINTR;
            return got;
        }
        size_t length = mbrtowc(key, &byte, 1, &state);
        if (length == (size_t)-1)
            memset(&state, 0, sizeof state);
        else if (length != (size_t)-2)
            return 1;
    }
}

void ah_keys_open(EditLine *edit)
{
    keys_editor = edit;
    keys_thread = (pid_t)syscall(SYS_gettid);
    el_set(edit, EL_GETCFN, next_key);
}

void ah_keys_begin(void)
{
    sigset_t set;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    interrupted = resized = stopped = deadly = 0;
    sigemptyset(&set);
    for (int i = 0; i < SIGNALS; i++) {
        sigaddset(&set, numbers[i]);
        sigaction(numbers[i], NULL, &actions[i]);
        if (actions[i].sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    sigprocmask(SIG_BLOCK, &set, &actions_before);
    keys_waiting = actions_before;
    for (int i = 0; i < SIGNALS; i++)
        sigdelset(&keys_waiting, numbers[i]);
    mark_pastes(true);
    /* Before the prompt is there: Ctrl-D behind it is a key. */
    el_set(keys_editor, EL_PREP_TERM, 1);
}

bool ah_keys_end(void)
{
    mark_pastes(false);
    sigprocmask(SIG_SETMASK, &actions_before, NULL);
    for (int i = 0; i < SIGNALS; i++)
        sigaction(numbers[i], &actions[i], NULL);
    if (deadly)
        raise(deadly);
    return interrupted;
}
