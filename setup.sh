#!/bin/sh
# Makes the environment: finds a Python 3.11-3.14, makes $VENV, installs octavo in place with its development tools.
# torch: the CPU build unless a GPU is seen. Each source is tried once, so that one out of reach costs seconds, not minutes.
set -eu
VENV=${VENV:-.venv}
cd "$(dirname "$0")"

find_python() {
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "setup: no Python 3.11 to 3.14 with venv was found" >&2
    echo "hint: install one, or name it: PYTHON=/path/to/python3.12 make setup" >&2
    exit 1
}

gpu_seen() { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; }

if [ ! -x "$VENV/bin/python" ]; then
    python=$(find_python)
    echo "setup: $VENV from $python" >&2
    "$python" -m venv "$VENV"
fi
pip="$VENV/bin/python -m pip --disable-pip-version-check --quiet"

if ! "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    if gpu_seen; then
        echo "setup: a GPU is seen: torch with its libraries (about 3 GB)" >&2
        $pip install -c constraints.txt 'torch>=2.10'
    else
        echo "setup: torch for the CPU" >&2
        # the CPU build where pip is set up to find it; else by uv, which knows where it is kept; else the general build
        $pip install --retries 0 --timeout 15 -c constraints.txt '.[cpu]' 2>/dev/null ||
            { $pip install --retries 0 uv && UV_HTTP_TIMEOUT=20 UV_HTTP_RETRIES=0 "$VENV/bin/python" -m uv --quiet pip install \
                --python "$VENV/bin/python" --torch-backend=cpu 'torch>=2.10'; } ||
            $pip install -c constraints.txt 'torch>=2.10'
    fi
fi
echo "setup: octavo and its development tools" >&2
$pip install -c constraints.txt -e '.[dev]'
echo "setup: done. make serve starts the server, make test runs the tests" >&2
