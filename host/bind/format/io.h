/* Declarations shared by bind/format/io.c and bind/format/saver.c, which write tensors. */
#pragma once

#include "bind/lua/bind.h"
#include "io/safetensors.h"

/* Arrays of names and of tensors, at two stack indices, as a C array in a userdata, which is pushed. Both arrays own
 * the memory that it points to. Raises unless the tensors are contiguous and on the CPU. */
struct ah_named *ah_push_named(lua_State *L, int names, int tensors, size_t *count);

/* The tensor at a stack index, which must be contiguous and on the CPU; `name` is for the message. */
struct ah_tensor *ah_check_plain(lua_State *L, int index, const char *name);

/* A table of texts by name at a stack index as a C array in a userdata, which is pushed; sorted. */
struct ah_note *ah_push_notes(lua_State *L, int index, const char *path, size_t *count);

/* Add the functions of folders and checksums (bind/format/io_folder.c) to the table on top of the stack. */
void ah_register_folder_functions(lua_State *L);
