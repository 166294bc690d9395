/* The choice for bfloat16, made once. */
#include "cpu/loop/bf16.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/loop/bf16_processor.h"
#include "cpu/loop/onednn.h"

/* The choice and its description; `text` NULL: not determined yet. */
static struct {
    bool native, in_blocks, pairs;
    const char *text;
} bf16_choice;

static void bf16_choose(void)
{
    const char *wanted = getenv("ACCELHOST_BF16");
    struct ah_bf16_processor has = ah_bf16_processor();
    const char *found = ah_onednn_built_in() ? has.name : NULL;
    bool fast = found && has.fast;
    if (wanted && !strcmp(wanted, "native"))
        fast = found != NULL;
    else if (wanted && !strcmp(wanted, "float32"))
        fast = false;
    bf16_choice.native = fast;
    bf16_choice.in_blocks = fast && has.blocks;
    bf16_choice.pairs = has.name && !(wanted && !strcmp(wanted, "float32"));
    if (fast)
        bf16_choice.text = found;
    else if (bf16_choice.pairs && has.blocks)
        bf16_choice.text = has.slower;
    else if (!found)
        bf16_choice.text =
            ah_onednn_built_in() ? "through float32 (the processor has none)" : "through float32 (no oneDNN)";
    else if (wanted && !strcmp(wanted, "float32"))
        bf16_choice.text = "through float32 (ACCELHOST_BF16)";
    else
        bf16_choice.text = has.slower;
}

bool ah_bf16_native(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.native;
}

bool ah_bf16_in_blocks(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.in_blocks;
}

bool ah_bf16_pairs(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.pairs;
}

const char *ah_bf16_text(void)
{
    if (!bf16_choice.text)
        bf16_choose();
    return bf16_choice.text;
}
