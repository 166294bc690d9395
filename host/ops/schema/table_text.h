/* The op table as one text, for comparing two builds: kernels are indexed by the table, so a plugin for devices must
 * have been built with the very rows of the program that opens it. */
#pragma once

#define OP(name, forward, kernel, signature, flags) #name "(" signature ") " #kernel "\n"
static const char ah_op_table_text[] =
#include "ops/schema/table.def"
    ;
#undef OP
