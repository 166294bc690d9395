/* The processor's instructions for bfloat16: a file for each architecture. For cpu/loop/bf16.c alone. */
#pragma once

#include <stdbool.h>

struct ah_bf16_processor {
    const char *name;   /* of the instructions; NULL: there are none */
    bool fast;          /* is oneDNN with them faster than with float32? */
    const char *slower; /* the description of the choice where not */
    bool blocks;        /* has it instructions for blocks of matrices (AMX, bfmmla)? */
};

/* Read the processor's identification. */
struct ah_bf16_processor ah_bf16_processor(void);
