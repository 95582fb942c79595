#!/usr/bin/env bash
# Installs missing Debian packages: packages.sh serve|test|smbtorture|cifs
set -euo pipefail

purpose=$1
python=${PYTHON:-python3}
wanted=()

command -v "$python" >/dev/null || wanted+=(python3)
# Debian ships venv without ensurepip, so importing venv alone is not enough.
"$python" -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
if [[ $purpose == test ]]; then
    # The simulation tests trace system calls and inject errors.
    command -v strace >/dev/null || wanted+=(strace)
    # The TLS tests create a certificate.
    command -v openssl >/dev/null || wanted+=(openssl)
    # The JavaScript SDK tests need Node.js.
    command -v node >/dev/null || wanted+=(nodejs)
    command -v npm >/dev/null || wanted+=(npm)
    # The tests of SMB use Samba's client.
    command -v smbclient >/dev/null || wanted+=(smbclient)
elif [[ $purpose == cifs ]]; then
    command -v qemu-system-x86_64 >/dev/null || wanted+=(qemu-system-x86)
elif [[ $purpose == smbtorture ]]; then
    # Not samba itself, which would start a file server on this machine: it is only needed to
    # record what Samba passes.
    command -v smbtorture >/dev/null || wanted+=(samba-testsuite)
fi

((${#wanted[@]})) || exit 0

fail() {
    echo "These Debian packages are missing: ${wanted[*]}" >&2
    echo "$1 Install them and try again." >&2
    if [[ " ${wanted[*]} " == *" python3-venv "* ]]; then
        echo "Or choose an interpreter with venv and ensurepip: make PYTHON=python3.12 ..." >&2
    fi
    exit 1
}

command -v apt-get >/dev/null || fail "apt-get is not available."

as_root=()
if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "Installing them requires root, and sudo is not available."
    as_root=(sudo)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y "$@"
}

apt update || fail "apt-get update failed."
apt install --no-install-recommends "${wanted[@]}" || fail "apt-get install failed."

"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' still has no venv with ensurepip; it may not be Debian's interpreter."
