/* The op table as one text, for comparing two builds: kernels are indexed by the table, so a plugin for devices must
 * have been built with the very rows of the program that opens it. */
#ifndef AH_OPS_TABLE_TEXT_H
#define AH_OPS_TABLE_TEXT_H

#define OP(name, forward, kernel, signature, flags) #name "(" signature ") " #kernel "\n"
static const char ah_op_table_text[] =
#include "ops/schema/table.def"
    ;
#undef OP

#endif
