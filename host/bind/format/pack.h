/* Serialise Lua values for another process of this program: tensors, numbers, texts, booleans, nil and tables of them.
 * A tensor is copied without its history; a table with two references becomes two tables. */
#pragma once

#include "bind/lua/bind.h"

/* The output buffer. `grow` enlarges it to at least `room` bytes, keeps its contents and returns its address in
 * *bytes; without `grow` the value is checked and counted only. */
struct ah_packer {
    unsigned char *bytes;
    size_t count, room;
    int (*grow)(void *context, size_t room, unsigned char **bytes);
    void *context;
    bool takes_far;  /* tensors of devices too: unpacked on the current device of their type */
    bool names_path; /* an error names the keys that lead to the value that cannot be serialised */
    int refusal;     /* index of a table that gets such a value (`value`), the reason in addition to its type (`why`,
                        " (it holds itself)") and the keys that lead to it, the last one first; 0: none */
};

enum ah_pack_kind {
    AH_PACK_NONE, /* cannot be serialised */
    AH_PACK_SCALAR, /* a number, text or boolean: also as a key */
    AH_PACK_TENSOR,
    AH_PACK_TABLE, /* one without a metatable, whose items decide */
};

/* Return the kind of the value at `index`. Nil is serialised in addition, as a separate value. */
enum ah_pack_kind ah_pack_kind(lua_State *L, int index);

/* Append the value at `index`. AH_EINVAL names a value that cannot be serialised. */
int ah_pack(lua_State *L, int index, struct ah_packer *packer);

/* Push the value at offset *at and advance it. AH_EIO when the bytes are not valid. */
int ah_unpack(lua_State *L, const unsigned char *bytes, size_t count, size_t *at);
