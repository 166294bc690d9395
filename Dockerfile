# accelhost in an image, built from this checkout: docker build -t accelhost .
#   docker run --rm -v "$PWD:/work" accelhost train.lua
# For CUDA, images with nvcc and with cuBLAS and cuDNN, of the same release of Ubuntu:
#   docker build -t accelhost-cuda --build-arg BUILD_IMAGE=nvidia/cuda:13.0.1-devel-ubuntu24.04 \
#     --build-arg IMAGE=nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04 .
#   docker run --rm --gpus all -v "$PWD:/work" accelhost-cuda train.lua
ARG BUILD_IMAGE=debian:bookworm
ARG IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY scripts/install-deps.sh scripts/
RUN scripts/install-deps.sh build wheel
COPY . .
RUN make wheel && mkdir /accelhost && tar -xzf build-portable/accelhost-*.tar.gz -C /accelhost --strip-components 1

FROM ${IMAGE}
COPY --from=build /accelhost /usr/local
WORKDIR /work
ENTRYPOINT ["accelhost"]
