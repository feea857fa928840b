# Fulcrum in a container, for CPUs (the default) or CUDA GPUs.
#
#   docker build --target cpu  -t fulcrum:cpu  --build-arg TORCH_INDEX=URL .     # URL: an index with torch's CPU builds
#   docker build --target cuda -t fulcrum:cuda .                                 # torch as the default index has it, with CUDA
#   docker run --rm -v "$PWD":/work fulcrum:cpu study run quick
#   docker run --rm --gpus all -v "$PWD":/work fulcrum:cuda train pocket --device cuda
#
# Without TORCH_INDEX the cpu target works too, and is some gigabytes larger. Written without a Docker engine at hand, and
# not built yet: docs/decisions/0053-distribution.md.
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

FROM torch-cuda AS cuda
COPY pyproject.toml README.md LICENSE ./
COPY fulcrum ./fulcrum
RUN pip install -c constraints.txt ".[diffusers]"
# A user of its own: what is written into /work is not root's. Give --user "$(id -u):$(id -g)" to make it yours.
RUN useradd --create-home lab && mkdir /work && chown lab /work
USER lab
WORKDIR /work
ENTRYPOINT ["fulcrum"]
CMD ["--help"]

FROM torch-cpu AS cpu
COPY pyproject.toml README.md LICENSE ./
COPY fulcrum ./fulcrum
RUN pip install -c constraints.txt ".[diffusers]"
RUN useradd --create-home lab && mkdir /work && chown lab /work
USER lab
WORKDIR /work
ENTRYPOINT ["fulcrum"]
CMD ["--help"]
