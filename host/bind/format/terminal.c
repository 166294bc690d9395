/* accelhost._C.terminal: a terminal that a program draws on: keys as they are pressed, its size, waiting for either.
 * Invariant: however the program ends, `leave` has run, or the shell has a terminal without echo. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "bind/lua/bind.h"

static struct termios terminal_before;
static bool terminal_entered;
static volatile sig_atomic_t terminal_ending;

static void terminal_restore(void)
{
    if (terminal_entered)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
    terminal_entered = false;
}

static void on_end(int number)
{
    terminal_ending = 1;
}

static void on_resize(int number)
{
}

/* enter(): keys arrive at once and are not shown, Ctrl-C among them */
static int terminal_enter(lua_State *L)
{
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, &terminal_before))
        return ah_raise_text(L, "standard input is no terminal");
    raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    if (!terminal_entered)
        atexit(terminal_restore);
    terminal_entered = true;
    /* Without SA_RESTART: they end the wait. */
    sigaction(SIGWINCH, &(struct sigaction){.sa_handler = on_resize}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_end}, NULL);
    sigaction(SIGHUP, &(struct sigaction){.sa_handler = on_end}, NULL);
    return 0;
}

AH_LUA_CALL(terminal_leave, terminal_restore())

/* size() -> columns, lines; 80 and 24 when they are unknown */
static int terminal_size(lua_State *L)
{
    struct winsize window = {0};
    bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) && window.ws_col > 0 && window.ws_row > 0;
    lua_pushinteger(L, known ? window.ws_col : 80);
    lua_pushinteger(L, known ? window.ws_row : 24);
    return 2;
}

/* key(seconds) -> a key that was pressed meanwhile, "end" when the program is to end, nil after the time or when the
 * size has changed */
static int terminal_key(lua_State *L)
{
    struct pollfd at = {.fd = STDIN_FILENO, .events = POLLIN};
    char pressed;
    if (!terminal_ending && poll(&at, 1, (int)(luaL_checknumber(L, 1) * 1000)) > 0) {
        ssize_t n = read(STDIN_FILENO, &pressed, 1);
        if (n == 1) {
            lua_pushlstring(L, &pressed, 1);
            return 1;
        }
        terminal_ending |= n == 0 || errno != EINTR;
    }
    if (!terminal_ending)
        return 0;
    lua_pushliteral(L, "end");
    return 1;
}

/* sleep(seconds) */
AH_LUA_CALL(sleep_for, poll(NULL, 0, (int)(luaL_checknumber(L, 1) * 1000)))

int ah_open_terminal(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"enter", terminal_enter}, {"leave", terminal_leave}, {"size", terminal_size},
        {"key", terminal_key},     {"sleep", sleep_for},      {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
