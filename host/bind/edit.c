/* accelhost._C.edit: the lines that somebody types. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bind/bind.h"
#include "bind/interrupt.h"

/* A line of stdin as it comes: -> text, or nil and "end" or "interrupt". */
static int plain(lua_State *L, const char *prompt)
{
    char *line = NULL;
    size_t room = 0;
    clearerr(stdin); /* of a read of the script that was interrupted */
    fputs(prompt, stdout);
    fflush(stdout);
    ssize_t length = getline(&line, &room, stdin);
    bool interrupted = ah_interrupt_take();
    if (length > 0)
        lua_pushlstring(L, line, (size_t)length - (line[length - 1] == '\n'));
    free(line);
    if (length > 0)
        return 1;
    lua_pushnil(L);
    lua_pushstring(L, interrupted ? "interrupt" : "end");
    return 2;
}

/* read(prompt) -> a line without its end, or nil and "end" or "interrupt" */
static int read_line(lua_State *L)
{
    return plain(L, luaL_checkstring(L, 1));
}

/* is_terminal() -> is there somebody who types and reads? */
static int is_terminal(lua_State *L)
{
    lua_pushboolean(L, isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
    return 1;
}

int ah_open_edit(lua_State *L)
{
    static const luaL_Reg functions[] = {{"read", read_line}, {"is_terminal", is_terminal}, {NULL, NULL}};
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
