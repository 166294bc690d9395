/* accelhost._C.edit: typed lines, by the line editor where its plugin is installed, else by plain reads.
 *
 * open(history, complete) -> true, or false and the reason; complete(text before the cursor) -> text to insert,
 *                            choices to show
 * read(prompt)    -> a line without its end, or nil and "end" or "interrupt"
 * remember(text)  add it to the history, for the Up key
 * list(folder)    -> names of files; folders end in /
 * is_terminal()   -> are stdin and stdout a terminal? */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/editor.h"
#include "base/status/status.h"
#include "bind/lua/bind.h"
#include "bind/lua/interrupt.h"

static const struct ah_editor *editor_plugin;
static lua_State *reader;
static const char complete_key; /* its address: the function's place in the registry */

/* A text that the editor frees. */
static char *edit_copy(lua_State *L, int index)
{
    const char *text = lua_tostring(L, index);
    return text ? strdup(text) : NULL;
}

static void edit_complete(void *context, const char *before, struct ah_completion *out)
{
    lua_State *L = reader;
    int top = lua_gettop(L);
    if (!lua_checkstack(L, 8))
        return;
    lua_pushlightuserdata(L, (void *)(uintptr_t)&complete_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    lua_pushstring(L, before);
    if (lua_pcall(L, 1, 2, 0) == 0) {
        out->insert = edit_copy(L, -2);
        out->list = edit_copy(L, -1);
    }
    lua_settop(L, top);
}

static int open_editor(lua_State *L)
{
    const char *history = luaL_optstring(L, 1, NULL);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&complete_key);
    lua_pushvalue(L, 2);
    lua_rawset(L, LUA_REGISTRYINDEX);
    if (!editor_plugin &&
        (ah_editor_open(&editor_plugin) < 0 || editor_plugin->open(history, edit_complete, NULL) < 0)) {
        editor_plugin = NULL;
        lua_pushboolean(L, false);
        lua_pushstring(L, ah_error_text());
        return 2;
    }
    lua_pushboolean(L, true);
    return 1;
}

/* Read a line of stdin without editing. */
static enum ah_editor_end read_plain(char **line, const char *prompt)
{
    size_t room = 0;
    clearerr(stdin); /* of a read of the script that was interrupted */
    fputs(prompt, stdout);
    fflush(stdout);
    ssize_t length = getline(line, &room, stdin);
    bool interrupted = ah_interrupt_take();
    if (length > 0 && (*line)[length - 1] == '\n')
        (*line)[length - 1] = 0;
    return length > 0 ? AH_EDITOR_LINE : interrupted ? AH_EDITOR_INTERRUPT : AH_EDITOR_END;
}

static int read_line(lua_State *L)
{
    char *line = NULL;
    const char *prompt = luaL_checkstring(L, 1);
    reader = L;
    enum ah_editor_end end = editor_plugin ? editor_plugin->read(&line, prompt) : read_plain(&line, prompt);
    lua_pushstring(L, end == AH_EDITOR_LINE ? line : NULL);
    free(line);
    if (end == AH_EDITOR_LINE)
        return 1;
    lua_pushstring(L, end == AH_EDITOR_INTERRUPT ? "interrupt" : "end");
    return 2;
}

static int edit_remember(lua_State *L)
{
    const char *text = luaL_checkstring(L, 1);
    if (editor_plugin)
        editor_plugin->remember(text);
    return 0;
}

static int edit_list(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    struct dirent **names = NULL;
    int count = scandir(folder, &names, NULL, alphasort), kept = 0;
    lua_newtable(L);
    for (int i = 0; i < count; i++) {
        char path[4096];
        struct stat info;
        const char *name = names[i]->d_name;
        bool known = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && !stat(path, &info);
        if (strcmp(name, ".") && strcmp(name, "..")) {
            lua_pushfstring(L, known && S_ISDIR(info.st_mode) ? "%s/" : "%s", name);
            lua_rawseti(L, -2, ++kept);
        }
        free(names[i]);
    }
    free(names);
    return 1;
}

AH_LUA_VALUE(is_terminal, lua_pushboolean, isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))

int ah_open_edit(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"open", open_editor}, {"read", read_line}, {"remember", edit_remember}, {"list", edit_list},
        {"is_terminal", is_terminal}, {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
