#!/usr/bin/env bash
# Installs missing Debian packages: packages.sh serve|nodes|test|cluster|smbtorture|cifs
set -euo pipefail

purpose=$1
python=${PYTHON:-python3}
wanted=()

command -v "$python" >/dev/null || wanted+=(python3)
# Debian ships venv without ensurepip, so importing venv alone is not enough.
"$python" -c 'import ensurepip, venv' 2>/dev/null || wanted+=(python3-venv)
if [[ $purpose == nodes || $purpose == test || $purpose == cluster ]]; then
    # `make cluster` and the tests of clusters start PostgreSQL themselves.
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || wanted+=(postgresql)
fi
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
    # The tests of its example configuration.
    command -v haproxy >/dev/null || wanted+=(haproxy)
elif [[ $purpose == cluster ]]; then
    command -v patroni >/dev/null || wanted+=(patroni)
    command -v etcd >/dev/null || wanted+=(etcd-server)
    /usr/bin/python3 -c 'import etcd' 2>/dev/null || wanted+=(python3-etcd)
    command -v haproxy >/dev/null || wanted+=(haproxy)
    command -v ceph-mon >/dev/null || wanted+=(ceph-mon)
    command -v ceph-mgr >/dev/null || wanted+=(ceph-mgr)
    command -v ceph-osd >/dev/null || wanted+=(ceph-osd)
    command -v ceph >/dev/null || wanted+=(ceph-common)
    /usr/bin/python3 -c 'import rados' 2>/dev/null || wanted+=(python3-rados)
    # The tests of partitions create network namespaces.
    command -v ip >/dev/null || wanted+=(iproute2)
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

# No package may start a service, and Debian's may not create a database, which would start with
# the machine. Debian asks this program before it starts a service.
policy=/usr/sbin/policy-rc.d
databases=/etc/postgresql
had_databases=0
[[ -e $databases ]] && had_databases=1
if [[ ! -e $policy ]]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
apt install --no-install-recommends "${wanted[@]}" || fail "apt-get install failed."
if ((!had_databases)); then
    for path in "$databases"/*/main; do
        [[ -e $path ]] && "${as_root[@]}" pg_dropcluster "$(basename "$(dirname "$path")")" main
    done
fi

"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' still has no venv with ensurepip; it may not be Debian's interpreter."
