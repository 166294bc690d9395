/* Elementwise functions that the C library lacks, in double for all floats (base/numeric/special_series.h). */
#include "cuda/kernels/lib/elementwise.cuh"

#define AH_SPECIAL static __device__
#include "base/numeric/special_series.h"

AH_EW1_FLOATS(digamma, ah_digamma_series(a))
AH_EW1_FLOATS(polygamma, ah_polygamma_series(static_cast<int>(c0), a))
AH_EW1_FLOATS(erfinv, ah_erfinv_series(a))
AH_EW1_FLOATS(ndtri, ah_ndtri_series(a))
AH_EW1_FLOATS(i0, ah_bessel_i_series(0, a))
AH_EW1_FLOATS(i1, ah_bessel_i_series(1, a))
