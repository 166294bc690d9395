/* Prototypes of every row's forward, from the op table: ah_forward_FORWARD. */
#pragma once

#include "base/status/status.h"
#include "ops/dispatch/op.h"

#define OP(name, forward, kernel, signature, flags) int ah_forward_##forward(struct ah_call *call);
#include "ops/schema/table.def"
#undef OP
