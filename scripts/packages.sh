#!/usr/bin/env bash
# Installs the Debian packages that are needed and missing: packages.sh serve|test
set -euo pipefail

purpose=$1
python=${PYTHON:-python3}
wanted=()

command -v "$python" >/dev/null || wanted+=(python3)
# Debian ships venv without ensurepip, so the import of venv alone proves nothing.
"$python" -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
if [[ $purpose == test ]]; then
    # The torture tests watch and break system calls.
    command -v strace >/dev/null || wanted+=(strace)
    # The tests of TLS make a certificate.
    command -v openssl >/dev/null || wanted+=(openssl)
    # The tests through the JavaScript SDK run it.
    command -v node >/dev/null || wanted+=(nodejs)
    command -v npm >/dev/null || wanted+=(npm)
fi

((${#wanted[@]})) || exit 0

fail() {
    echo "These Debian packages are needed: ${wanted[*]}" >&2
    echo "$1 Please install them and try again." >&2
    if [[ " ${wanted[*]} " == *" python3-venv "* ]]; then
        echo "Or name an interpreter that has venv and ensurepip: make PYTHON=python3.12 ..." >&2
    fi
    exit 1
}

command -v apt-get >/dev/null || fail "There is no apt-get here."

as_root=()
if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "Installing them takes root, and there is no sudo here."
    as_root=(sudo)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y "$@"
}

apt update || fail "apt-get update failed."
apt install --no-install-recommends "${wanted[@]}" || fail "apt-get install failed."

"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' still has no venv with ensurepip; it may not be Debian's own."
