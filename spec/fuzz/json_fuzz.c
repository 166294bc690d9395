/* Fuzz target: JSON text. A value that is read is written, and reads back to the same text.
 * sources: host/bind/format/json_read.c host/bind/format/json_write.c host/base/status/status.c */
#include <lauxlib.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status/status.h"
#include "bind/format/json_value.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static lua_State *L;
    if (!L) {
        L = luaL_newstate();
        lua_newtable(L); /* the metatable of arrays */
    }
    int status = ah_json_read(L, (const char *)bytes, count, 1);
    if (status < 0 && !*ah_error_text())
        abort();
    if (lua_gettop(L) != (status < 0 ? 1 : 2))
        abort();
    if (status < 0)
        return 0;
    /* A key with a NUL or a value too deep is all that has no text. */
    for (int indent = 0; indent < 3 && ah_json_write(L, 2, 1, indent) == 0; indent += 2) {
        size_t length, again;
        const char *text = lua_tolstring(L, 3, &length);
        if (ah_json_read(L, text, length, 1) < 0 || ah_json_write(L, 4, 1, indent) < 0)
            abort();
        if (strcmp(text, lua_tolstring(L, 5, &again)) || length != again)
            abort();
        lua_settop(L, 2);
    }
    lua_settop(L, 1);
    return 0;
}
