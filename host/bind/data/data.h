/* Declarations shared by the files of accelhost._C.data. */
#pragma once

#include "bind/lua/bind.h"

enum { AH_SEED_BYTES = 8 };

/* The Generator at `index`; nil or none: the default generator. */
struct ah_generator *ah_opt_generator(lua_State *L, int index);

/* A draw: a contiguous uint8 tensor on the CPU. */
const unsigned char *ah_check_draw(lua_State *L, int index, int64_t *count);

/* A draw of 8 bytes as the number it is. */
uint64_t ah_check_seed_bytes(lua_State *L, int index);

/* Add functions to the table on top of the stack. */
void ah_add_gather(lua_State *L);
void ah_add_streams(lua_State *L);
void ah_add_images(lua_State *L);
void ah_add_tables(lua_State *L);
void ah_add_tokens(lua_State *L);
