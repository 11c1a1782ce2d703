# Builds the image of all steps and training processes of a pipeline. It has this
# package, and the folder of the pipeline's module.
#
#   docker build --build-arg PIPELINE=examples/digits -t registry.example.com/team/digits:1 .
#   docker build --build-arg PIPELINE=examples/digits --build-arg ACCELERATOR=gpu -t registry.example.com/team/digits:1-gpu .
#
# ACCELERATOR=gpu: installs the CUDA libraries as packages; the node has the driver.
# TENSORFLOW=...: installs any pip requirement, e.g. a build for TPUs.
# REDUCTION_SERVER=yes: installs NCCL's plugin for the reduction servers of Vertex AI.
#
# Dataflow's machines use the image as it is. To run Python in it:
# `docker run --entrypoint python IMAGE ...`.

FROM python:3.10-slim-bookworm AS build
# One dependency of TFX has no wheel.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements.lock .
RUN pip install --require-hashes --requirement requirements.lock
ARG ACCELERATOR=cpu
ARG TENSORFLOW=
RUN if [ "$ACCELERATOR" = gpu ]; then pip install "tensorflow[and-cuda]==2.16.2"; fi && \
    if [ -n "$TENSORFLOW" ]; then pip install "$TENSORFLOW"; fi
COPY setup.py README.md LICENSE ./
COPY src src
COPY trainer_module trainer_module
COPY components components
COPY pipelines pipelines
RUN pip install --no-deps --no-build-isolation .
# Halves the time of every import, and so shortens every step.
RUN python -m compileall -q -j 0 /opt/venv/lib

# The version of apache-beam in requirements.lock; a test compares the two.
FROM apache/beam_python3.10_sdk:2.74.0 AS beam

FROM python:3.10-slim-bookworm
# https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction_server
ARG REDUCTION_SERVER=no
RUN if [ "$REDUCTION_SERVER" = yes ]; then \
        apt-get update && apt-get install --yes --no-install-recommends curl gnupg && \
        curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg | gpg --dearmor -o /usr/share/keyrings/google.gpg && \
        echo "deb [signed-by=/usr/share/keyrings/google.gpg] https://packages.cloud.google.com/apt google-fast-socket main" \
            >/etc/apt/sources.list.d/google-fast-socket.list && \
        apt-get update && apt-get install --yes google-reduction-server && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/venv /opt/venv
ARG PIPELINE=examples/digits
COPY ${PIPELINE} /pipeline
WORKDIR /pipeline
# Every step and every training process imports the module from /pipeline.
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/pipeline PYTHONUNBUFFERED=1
# Dataflow's machines start Python with this. Steps and training processes have their
# own commands.
COPY --from=beam /opt/apache/beam /opt/apache/beam
# Otherwise boot creates another environment, without these packages.
ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
ENTRYPOINT ["/opt/apache/beam/boot"]
