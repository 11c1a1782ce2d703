#!/bin/sh
# Creates .venv, with the locked packages and this project (editable), and .venv-kfp,
# for a test. Takes no time if nothing has changed. Needs a Python with venv, a C++
# compiler with the Python headers (one dependency of TFX has no wheel) and the package
# index.
set -eu
cd "$(dirname "$0")"

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

# TFX 1.16 needs Python 3.10, which may have many names: each candidate is run. If none
# is 3.10, the version is returned, and uv fetches one.
find_python() {
    for candidate in "${PYTHON:-}" python3.10 "$(pyenv prefix 3.10 2>/dev/null || true)/bin/python" \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python python3; do
        if [ -n "$candidate" ] && [ "$(version_of "$candidate")" = 3.10 ]; then
            command -v "$candidate"
            return
        fi
    done
    echo 3.10
}

find_uv() {
    if uv --version >/dev/null 2>&1; then
        echo uv
        return
    fi
    if ! .venv-tools/bin/uv --version >/dev/null 2>&1; then
        python3 -m venv --clear .venv-tools >&2
        .venv-tools/bin/python -m pip install --quiet --disable-pip-version-check uv >&2
    fi
    echo .venv-tools/bin/uv
}

# The content of the files that decide on the environment, not their age: a new checkout
# of the same files changes nothing.
wanted=$(cat requirements.lock tests/kfp.lock setup.py src/tfx_distribute/__init__.py bootstrap.sh \
    components/launchers/local/_loopback.c | cksum)
if [ "$(cat .venv/.installed 2>/dev/null || true)" = "$wanted" ]; then
    exit 0
fi

uv=$(find_uv)
python=$(find_python)
if [ "$(version_of .venv/bin/python)" != 3.10 ]; then
    "$uv" venv --quiet --clear --python "$python" .venv
fi
echo "installing the locked packages into .venv (3.5 GB the first time)"
# Byte code halves the time of every import.
export UV_COMPILE_BYTECODE=1 VIRTUAL_ENV="$PWD/.venv"
# Trusts the machine's certificates (uv has its own otherwise). The setting has two names,
# of older and newer versions of uv.
export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1
"$uv" pip sync --quiet requirements.lock
"$uv" pip install --quiet --no-deps --no-build-isolation --editable .
# The protobufs of the newest Kubeflow Pipelines, for a test: TFX pins older ones.
"$uv" venv --quiet --clear --python .venv/bin/python .venv-kfp
VIRTUAL_ENV="$PWD/.venv-kfp" "$uv" pip sync --quiet tests/kfp.lock
echo "$wanted" >.venv/.installed
