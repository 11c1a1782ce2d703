# Builds the image of all steps and training processes of a pipeline. It has this
# package, and the folder of the pipeline's module.
#
#   docker build --build-arg PIPELINE=examples/digits -t registry.example.com/team/digits:1 .
#   docker build --build-arg PIPELINE=examples/digits --build-arg ACCELERATOR=gpu -t registry.example.com/team/digits:1-gpu .
#
# LINE=1.16: installs TFX 1.16, instead of TFX 1.21, on its own base images:
#   --build-arg LINE=1.16 --build-arg PYTHON_IMAGE=python:3.10-slim-bookworm --build-arg BEAM_IMAGE=apache/beam_python3.10_sdk:2.74.0
# ACCELERATOR=gpu: installs the CUDA libraries as packages; the node has the driver.
# ACCELERATOR=tpu: installs TensorFlow for TPUs and libtpu, their driver, with LINE=1.16.
# TENSORFLOW=...: installs any pip requirements in place of TensorFlow, such as a build
#   for TPUs of your own.
# REDUCTION_SERVER=yes: installs NCCL's plugin for the reduction servers of Vertex AI.
# PYTHON_IMAGE, BEAM_IMAGE: the base images. Tags move; for builds that can be repeated,
# name digests, which `docker buildx imagetools inspect python:3.13-slim-trixie`
# prints: --build-arg PYTHON_IMAGE=python@sha256:...
# USER_ID: user and group that processes run as, without privileges; 0 for root. Dataflow's
# machines need an image with USER_ID=0: they mount folders that only root can write to.
#
# To run Python in it: `docker run --entrypoint python IMAGE ...`.

ARG PYTHON_IMAGE=python:3.13-slim-trixie
ARG BEAM_IMAGE=apache/beam_python3.13_sdk:2.77.0

FROM ${PYTHON_IMAGE} AS build
# One dependency of TFX has no wheel.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
ARG LINE=1.21
ARG ACCELERATOR=cpu
COPY lines/${LINE}/image-*.lock lines/${LINE}/tpu.txt ./
# The lock is complete. pip 23, which Python's image has, refuses to resolve it again.
# Headers, static libraries and the packages' own tests are of no use at run time. NumPy 2
# imports some of its own. Byte code has the time of its file, which copies round to whole
# seconds: without those, Python compiles at every start. Templates cannot be compiled.
RUN case $ACCELERATOR in cpu|tpu) lock=image-cpu.lock ;; *) lock=image-$ACCELERATOR.lock ;; esac && \
    pip install --no-compile --no-deps --use-pep517 --require-hashes --requirement $lock && \
    rm -rf /opt/venv/lib/python*/site-packages/tensorflow/include && \
    find /opt/venv -name '*.a' -delete && \
    find /opt/venv -path '*/numpy/_core' -prune -o -type d \( -name tests -o -name testdata \) -prune -exec rm -rf {} + && \
    find /opt/venv/lib -name '*.py' -exec touch --date=2020-01-01 {} + && \
    { python -m compileall -qq --workers 0 /opt/venv/lib || true; }
ARG TENSORFLOW=
RUN if [ -n "$TENSORFLOW" ]; then \
        pip uninstall --yes tensorflow tensorflow-cpu && pip install $TENSORFLOW; \
    elif [ "$ACCELERATOR" = tpu ]; then \
        grep --quiet '^tensorflow-tpu' tpu.txt || { cat tpu.txt; exit 1; }; \
        pip uninstall --yes tensorflow-cpu && pip install --no-deps --requirement tpu.txt; \
    fi
COPY setup.py README.md LICENSE ./
COPY src src
COPY trainer_module trainer_module
COPY components components
COPY pipelines pipelines
COPY examples examples
RUN pip install --no-compile --no-deps --no-build-isolation . && \
    find /opt/venv/lib/python*/site-packages/tfx_distribute -name '*.py' -exec touch --date=2020-01-01 {} + && \
    python -m compileall -qq /opt/venv/lib/python*/site-packages/tfx_distribute && \
    python -B -c "import tfx.v1, tfx_distribute.trainer_module.process"

FROM ${BEAM_IMAGE} AS beam

FROM ${PYTHON_IMAGE}
# https://cloud.google.com/vertex-ai/docs/training/distributed-training#reduction_server
ARG REDUCTION_SERVER=no
RUN if [ "$REDUCTION_SERVER" = yes ]; then \
        apt-get update && apt-get install --yes --no-install-recommends curl gnupg && \
        curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg | gpg --dearmor -o /usr/share/keyrings/google.gpg && \
        echo "deb [signed-by=/usr/share/keyrings/google.gpg] https://packages.cloud.google.com/apt google-fast-socket main" \
            >/etc/apt/sources.list.d/google-fast-socket.list && \
        apt-get update && apt-get install --yes google-reduction-server && rm -rf /var/lib/apt/lists/*; \
    fi
ARG USER_ID=1000
RUN if [ "$USER_ID" != 0 ]; then \
        groupadd --gid $USER_ID trainer && useradd --uid $USER_ID --gid $USER_ID --create-home trainer; \
    fi
COPY --from=build /opt/venv /opt/venv
# TensorFlow does not look for CUDA's libraries where pip installs them.
RUN ls -d /opt/venv/lib/python*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/nvidia-packages.conf 2>/dev/null; ldconfig
# Dataflow's machines and worker pools of Beam start Python with this. Steps and training
# processes have their own commands.
COPY --from=beam /opt/apache/beam /opt/apache/beam
# Without the last, boot creates another environment, without these packages. Google's
# nodes have the driver where only LD_LIBRARY_PATH finds it. One process of a machine can
# load the driver of TPUs: a training process does so in spite of TPU_LOAD_LIBRARY.
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/pipeline PYTHONUNBUFFERED=1 \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} TPU_LOAD_LIBRARY=0 \
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
# Every step and every training process imports the module from /pipeline.
ARG PIPELINE=examples/digits
COPY ${PIPELINE} /pipeline
# Files that only their owner could read here belong to root there.
RUN chmod -R a+rX /pipeline
WORKDIR /pipeline
USER $USER_ID:$USER_ID
# Beam's program writes a file to its folder.
ENTRYPOINT ["/bin/sh", "-c", "[ -w . ] || cd \"$(mktemp -d)\"; exec /opt/apache/beam/boot \"$@\"", "boot"]
