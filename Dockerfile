# Fulcrum in a container, for CPUs (the default) or CUDA GPUs.
#
#   docker build -t fulcrum:cpu --build-arg TORCH_INDEX=URL .         # URL: an index that has torch's CPU builds
#   docker build -t fulcrum:cuda --build-arg DEVICE=cuda .            # torch as the default index has it, with CUDA
#   docker run --rm -v "$PWD":/work fulcrum:cpu study run quick
#   docker run --rm --gpus all -v "$PWD":/work fulcrum:cuda train pocket --device cuda
#
# Without TORCH_INDEX the CPU image works too, and is some gigabytes larger. Written without a Docker engine at hand, and
# not built yet: docs/decisions/0053-distribution.md.
ARG DEVICE=cpu

FROM python:3.12-slim AS base
# The compiler makes training faster; torch's compiler looks for g++ and openssl.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ openssl \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY constraints.txt ./

FROM base AS torch-cpu
ARG TORCH_INDEX=""
RUN pip install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch

FROM base AS torch-cuda
RUN pip install -c constraints.txt torch

FROM torch-${DEVICE} AS fulcrum
COPY pyproject.toml README.md LICENSE ./
COPY fulcrum ./fulcrum
RUN pip install -c constraints.txt ".[diffusers]"
# Not root; what is written into /work belongs to this user, or to yours with --user "$(id -u):$(id -g)".
RUN useradd --create-home lab && mkdir /work && chown lab /work
USER lab
WORKDIR /work
ENTRYPOINT ["fulcrum"]
CMD ["--help"]
