/* The CPU as a device: its kernel column, filled from the op table by the kernels' names. */
#include "cpu/device.h"

#include "cpu/optim.h"
#include "ops/op.h"
#include "ops/table_text.h"

/* A kernel is found by its name: an op without one (a view, a composite) leaves its entry NULL. */
#define OP(name, signature, flags) int ah_cpu_##name(struct ah_call *call) __attribute__((weak));
#include "ops/table.def"
#undef OP

static const ah_kernel kernels[AH_OP_COUNT + 1] = {
#define OP(name, signature, flags) [AH_OP_##name] = ah_cpu_##name,
#include "ops/table.def"
};
#undef OP

void ah_cpu_open(void)
{
    ah_cpu.kernels = kernels;
    ah_cpu.optim = &ah_cpu_optim;
    ah_cpu.table = ah_op_table_text;
}
