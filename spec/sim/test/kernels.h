/* Arguments of the kernels in kernels.cu. */
#pragma once

struct kernel_args {
    int *to, *count;
    int n;
};
