/* The compiled kernels in the plugin: one image for each file of host/cuda/kernels, by the file's name. Made by the
 * build (scripts/cuda/images.sh); empty where it had no nvcc. */
#pragma once

struct ah_cuda_image {
    const char *file;
    const void *data;
};

/* Up to one without a file. */
extern const struct ah_cuda_image ah_cuda_images[];
/* The targets and the compiler of the images: "for sm_80 sm_90 by CUDA 13.0"; "" without images. */
extern const char ah_cuda_images_for[];
/* The version of CUDA that compiled them, and the oldest one whose drivers load them: 13000 is 13.0; 0 without
 * images. */
extern const int ah_cuda_images_toolkit, ah_cuda_images_driver;
