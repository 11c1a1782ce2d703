#!/bin/sh
# Creates .venv, with the locked packages and this project (editable), and .venv-kfp,
# for a test, and says which line of TFX this is: the newest that this machine can run,
# or LINE. PYTHON names the interpreter. With the argument `publish`, creates
# .venv-publish instead, for the site and the packages. Takes no time if nothing has
# changed. Needs a Python with venv, a C++ compiler with the Python headers (one
# dependency of TFX has no wheel) and the package index.
set -eu
cd "$(dirname "$0")"

fail() {
    echo "error: $1" >&2
    exit 1
}

[ ! -e .venv ] || [ -e .venv/.installed ] ||
    fail ".venv was not made by bootstrap.sh, which would remove its packages: move it elsewhere, or remove it"

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/glibc //')
newest=no
[ -z "$glibc" ] || [ "$(printf '%s\n' 2.39 "$glibc" | sort -V | head -n 1)" != 2.39 ] || newest=yes

why=
if [ -z "$glibc" ]; then
    fail "TFX has packages for Linux with glibc only: use a Debian or Ubuntu, or the image of the Dockerfile"
elif [ -z "${LINE:-}" ] && [ $newest = yes ]; then
    LINE=1.21
elif [ -z "${LINE:-}" ]; then
    LINE=1.16
    why=": TFX 1.21 needs glibc 2.39, and this is $glibc"
fi
case $LINE in
1.21)
    [ $newest = yes ] || fail "LINE=1.21 needs glibc 2.39 or newer, and this is $glibc: \`make test-line LINE=1.21\` runs the tests in a newer Debian"
    pythons="3.13 3.12 3.11 3.10"
    ;;
1.16) pythons=3.10 ;;
*) fail "LINE=$LINE: there are 1.21 and 1.16" ;;
esac

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true; }

if [ -n "${PYTHON:-}" ]; then
    version=$(version_of "$PYTHON")
    case " $pythons " in
    *" ${version:-none} "*) pythons=$version ;;
    *) fail "PYTHON=$PYTHON is ${version:+Python }${version:-no Python}, and TFX $LINE runs on Python $pythons" ;;
    esac
fi

# A version may have many names: each candidate is run. If there is none, the first
# version is returned, and uv fetches one.
find_python() {
    for version in $pythons; do
        for candidate in "${PYTHON:-}" "python$version" "$(pyenv prefix "$version" 2>/dev/null || true)/bin/python" \
            "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python python3; do
            if [ -n "$candidate" ] && [ "$(version_of "$candidate")" = "$version" ]; then
                command -v "$candidate"
                return
            fi
        done
    done
    echo "${pythons%% *}"
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

# Trusts the machine's certificates (uv has its own otherwise). The setting has two
# names, of older and newer versions of uv.
export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1

if [ "${1:-}" = publish ]; then
    wanted=$(cat docs/publish.lock | cksum)
    if [ "$(cat .venv-publish/.installed 2>/dev/null || true)" != "$wanted" ]; then
        uv=$(find_uv)
        "$uv" venv --quiet --clear --python "$(find_python)" .venv-publish
        VIRTUAL_ENV="$PWD/.venv-publish" "$uv" pip sync --quiet docs/publish.lock
        echo "$wanted" >.venv-publish/.installed
    fi
    exit
fi

# The content of the files that decide on the environment, not their age: a new checkout
# of the same files changes nothing.
wanted=$(cat "lines/$LINE/packages.lock" tests/kfp.lock setup.py src/tfx_distribute/__init__.py bootstrap.sh \
    components/launchers/local/_loopback.c | cksum)
case " $pythons " in
*" $(version_of .venv/bin/python) "*) ;;
*) rm -rf .venv ;;
esac
if [ "$(cat .venv/.installed 2>/dev/null || true)" != "$wanted" ]; then
    uv=$(find_uv)
    if [ ! -e .venv ]; then
        mkdir .venv
        : >.venv/.installed  # says whose it is, even if the rest fails
    fi
    [ -e .venv/bin/python ] || "$uv" venv --quiet --allow-existing --python "$(find_python)" .venv
    echo "installing the locked packages of TFX $LINE into .venv (3.5 GB the first time)"
    # Byte code halves the time of every import.
    export UV_COMPILE_BYTECODE=1 VIRTUAL_ENV="$PWD/.venv"
    "$uv" pip sync --quiet "lines/$LINE/packages.lock"
    "$uv" pip install --quiet --no-deps --no-build-isolation --editable .
    # The protobufs of the newest Kubeflow Pipelines, for a test: TFX pins older ones.
    "$uv" venv --quiet --clear --python .venv/bin/python .venv-kfp
    VIRTUAL_ENV="$PWD/.venv-kfp" "$uv" pip sync --quiet tests/kfp.lock
    echo "$wanted" >.venv/.installed
fi
echo "TFX $LINE on Python $(version_of .venv/bin/python)$why"
