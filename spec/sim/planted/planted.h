/* Arguments of the kernels with planted errors and of their correct twins. */
#pragma once

struct planted_args {
    float *to;
    const float *from;
    int n;
};
