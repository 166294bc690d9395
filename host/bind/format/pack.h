/* Lua values as bytes and back: tensors, numbers, texts, booleans, nil and tables of them, for another process of this
 * program. A tensor is copied without its history; a table that is there twice comes out as two. */
#ifndef AH_BIND_PACK_H
#define AH_BIND_PACK_H

#include "bind/lua/bind.h"

/* Where bytes go. `grow` makes room for at least so many and says where they begin; what was written stays. */
struct ah_packer {
    unsigned char *bytes;
    size_t count, room;
    int (*grow)(void *context, size_t room, unsigned char **bytes);
    void *context;
    bool takes_far;  /* tensors of devices too: they come out on the current device of their type there */
    bool tells_path; /* an error names the keys that lead to what cannot travel */
    int status; /* of the first failure; later calls do nothing */
};

/* The value at `index`, behind what is there. AH_EINVAL names what cannot travel. */
int ah_pack(lua_State *L, int index, struct ah_packer *packer);

/* Push the value that lies at *at and move on. AH_EIO when the bytes are none. */
int ah_unpack(lua_State *L, const unsigned char *bytes, size_t count, size_t *at);

#endif
