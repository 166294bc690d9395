/* Arguments of the kernels in kernels.cu. */
#ifndef AH_SIM_TEST_KERNELS_H
#define AH_SIM_TEST_KERNELS_H

struct kernel_args {
    int *to, *count;
    int n;
};

#endif
