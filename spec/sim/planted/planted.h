/* Arguments of the kernels with planted errors and of their correct twins. */
#ifndef AH_SIM_PLANTED_H
#define AH_SIM_PLANTED_H

struct planted_args {
    float *to;
    const float *from;
    int n;
};

#endif
