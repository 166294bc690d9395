/* The CPU as a device: its kernel column, filled by the kernels that the op table names; `none` leaves NULL. */
#include "cpu/device.h"

#include "cpu/kernels.h"
#include "cpu/linear/gemm.h"
#include "cpu/optim_loss/optim.h"
#include "ops/dispatch/op.h"
#include "ops/schema/table_text.h"

#define ah_cpu_none NULL
#define ah_cpu_conv_volume NULL
#define ah_cpu_conv_volume_grad_input NULL
#define ah_cpu_conv_volume_grad_weight NULL

static const ah_kernel cpu_kernels[AH_OP_COUNT + 1] = {
#define OP(name, forward, kernel, signature, flags) [AH_OP_##name] = ah_cpu_##kernel,
#include "ops/schema/table.def"
};
#undef OP

void ah_cpu_open(void)
{
    ah_cpu.kernels = cpu_kernels;
    ah_cpu.optim = &ah_cpu_optim;
    ah_cpu.table = ah_op_table_text;
    ah_cpu.rounds_weights = ah_gemm_rounds;
}
