/* accelhost._C.saver: folders that appear whole or not at all (io/saver.h).
 *
 * begin(goal, replace) -> saver of part 0; nil and the reason
 * join(folder, part) -> saver of another part
 * remove(path): a folder that a saver made; one that has to stay is reported by a line (io/stage.h)
 * check(path) -> nil when a saver may replace the folder, a link to one being followed; else the reason
 * saver:folder() -> the hidden folder
 * saver:start{files = {{name =, text =} or {name =, names = {...}, tensors = {...}, notes = {...}}, ...},
 *             parts =, facts =, victims = {...}, timeout =}
 * saver:written(), saver:wait() -> nil, or the reason of its failure
 * saver:is_over(), saver:cancel(), saver:close()
 *
 * The thread's inputs are kept by the saver's environment until the saver is closed or collected. */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/status/status.h"
#include "bind/format/io.h"
#include "bind/lua/class.h"
#include "io/saver.h"
#include "io/stage.h"

static const struct ah_class saver_class;

static struct ah_saver *check_saver(lua_State *L)
{
    struct ah_saver **held = ah_class_check(L, 1, &saver_class);
    if (!*held)
        ah_raise_text(L, "the saver is closed");
    return *held;
}

static struct ah_saver **push_saver(lua_State *L)
{
    struct ah_saver **held = ah_class_new(L, &saver_class, sizeof *held);
    lua_newtable(L);
    lua_setfenv(L, -2);
    return held;
}

static int saver_begin(lua_State *L)
{
    const char *goal = luaL_checkstring(L, 1);
    bool replace = lua_toboolean(L, 2);
    return ah_saver_begin(push_saver(L), goal, replace) < 0 ? ah_push_error(L) : 1;
}

static int saver_join(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    int part = (int)luaL_checkinteger(L, 2);
    ah_check(L, ah_saver_join(push_saver(L), folder, part));
    return 1;
}

AH_LUA_VALUE(saver_folder, lua_pushstring, ah_saver_folder(check_saver(L)))

/* A text of the table on top of the stack, which keeps it; NULL without. */
static const char *text_field(lua_State *L, const char *name, size_t *bytes)
{
    lua_getfield(L, -1, name);
    const char *text = lua_tolstring(L, -1, bytes);
    lua_pop(L, 1);
    return text;
}

/* Read the table on top of the stack; objects made of it are kept by the array at index `kept`. */
static void read_file(lua_State *L, struct ah_saver_file *file, int kept)
{
    int top = lua_gettop(L);
    file->name = text_field(L, "name", NULL);
    file->text = text_field(L, "text", &file->bytes);
    if (!file->name)
        ah_raise_text(L, "start: a file without a name");
    if (!file->text) {
        lua_getfield(L, top, "names");
        lua_getfield(L, top, "tensors");
        lua_getfield(L, top, "notes");
        file->tensor = ah_push_named(L, top + 1, top + 2, &file->tensor_count);
        lua_rawseti(L, kept, (int)lua_objlen(L, kept) + 1);
        file->note = ah_push_notes(L, top + 3, file->name, &file->note_count);
        lua_rawseti(L, kept, (int)lua_objlen(L, kept) + 1);
    }
    lua_settop(L, top);
}

/* The array at index `files` as a C array, kept by the one at `kept`. */
static void read_files(lua_State *L, struct ah_saver_plan *plan, int files, int kept)
{
    plan->count = lua_objlen(L, files);
    plan->file = lua_newuserdata(L, (plan->count + 1) * sizeof *plan->file);
    lua_rawseti(L, kept, (int)lua_objlen(L, kept) + 1);
    for (size_t i = 0; i < plan->count; i++) {
        plan->file[i] = (struct ah_saver_file){0};
        lua_rawgeti(L, files, (int)i + 1);
        read_file(L, &plan->file[i], kept);
        lua_pop(L, 1);
    }
}

static void read_victims(lua_State *L, struct ah_saver_plan *plan, int victims, int kept)
{
    int count = lua_istable(L, victims) ? (int)lua_objlen(L, victims) : 0;
    const char **list = lua_newuserdata(L, ((size_t)count + 1) * sizeof *list);
    lua_rawseti(L, kept, (int)lua_objlen(L, kept) + 1);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, victims, i + 1);
        list[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    list[count] = NULL;
    plan->victim = list;
}

static int saver_start(lua_State *L)
{
    struct ah_saver *saver = check_saver(L);
    struct ah_saver_plan plan = {0};
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_getfenv(L, 1);
    lua_pushvalue(L, 2);
    lua_rawseti(L, 3, 1);
    lua_getfield(L, 2, "files");
    lua_getfield(L, 2, "victims");
    lua_pushvalue(L, 2);
    luaL_checktype(L, 4, LUA_TTABLE);
    plan.facts = text_field(L, "facts", NULL);
    plan.parts = (int)ah_opt_int(L, 2, "parts", 1);
    plan.timeout = ah_opt_number(L, 2, "timeout", 600);
    read_files(L, &plan, 4, 3);
    read_victims(L, &plan, 5, 3);
    ah_check(L, ah_saver_start(saver, &plan));
    return 0;
}

static int saver_answer(lua_State *L, int status)
{
    if (status == 0)
        return 0;
    lua_pushstring(L, ah_error_text());
    return 1;
}

static int saver_written(lua_State *L)
{
    return saver_answer(L, ah_saver_written(check_saver(L)));
}

static int wait_for(lua_State *L)
{
    return saver_answer(L, ah_saver_wait(check_saver(L)));
}

AH_LUA_VALUE(is_over, lua_pushboolean, ah_saver_is_over(check_saver(L)))
AH_LUA_CALL(saver_cancel, ah_saver_cancel(check_saver(L)))

static int close_saver(lua_State *L)
{
    struct ah_saver **held = ah_class_check(L, 1, &saver_class);
    ah_saver_close(*held);
    *held = NULL;
    lua_newtable(L);
    lua_setfenv(L, 1);
    return 0;
}

AH_LUA_CALL(remove_folder, ah_stage_remove(luaL_checkstring(L, 1)))

static int check_folder(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    char real[PATH_MAX];
    struct stat info;
    bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && realpath(path, real);
    return saver_answer(L, ah_stage_check(is_link ? real : path));
}

static const luaL_Reg saver_methods[] = {
    {"folder", saver_folder}, {"start", saver_start},   {"written", saver_written}, {"wait", wait_for},
    {"is_over", is_over},     {"cancel", saver_cancel}, {"close", close_saver},     {NULL, NULL},
};
static const struct ah_class saver_class = {"accelhost.saver", saver_methods, NULL, close_saver};

int ah_open_saver(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"begin", saver_begin}, {"join", saver_join}, {"remove", remove_folder}, {"check", check_folder}, {NULL, NULL},
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    return 1;
}
