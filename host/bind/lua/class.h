/* Classes of userdata objects. */
#pragma once

#include <lauxlib.h>
#include <lua.h>

/* A static description. The metatable is created with the first object of a state. */
struct ah_class {
    const char *name;        /* in errors, and the metatable's key in the registry: "accelhost.saver" */
    const luaL_Reg *methods; /* NULL-ended; NULL: none */
    lua_CFunction index;     /* __index, with the table of methods as upvalue 1; NULL: the methods alone */
    lua_CFunction collect;   /* frees an object's resources, also of an object that is still zero; NULL: nothing */
};

/* Push a new object of `bytes` zero bytes. */
void *ah_class_new(lua_State *L, const struct ah_class *class, size_t bytes);

/* The object at `index`; NULL for any other value. */
void *ah_class_to(lua_State *L, int index, const struct ah_class *class);
/* The same, but raises "bad argument" for any other value. */
void *ah_class_check(lua_State *L, int index, const struct ah_class *class);

/* Define a method and collector of objects that are pointers: `close` the pointer of such an object and set it to NULL,
 * for which `close` does nothing. */
#define AH_CLASS_CLOSER(method, class, type, close)       \
    static int method(lua_State *L)                       \
    {                                                     \
        type **object = ah_class_check(L, 1, &(class));   \
        close(*object);                                   \
        *object = NULL;                                   \
        return 0;                                         \
    }

/* Add the methods of a NULL-ended list. */
void ah_class_add(lua_State *L, const struct ah_class *class, const luaL_Reg *methods);
/* Push the metatable. */
void ah_class_push(lua_State *L, const struct ah_class *class);
