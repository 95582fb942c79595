#!/usr/bin/env bash
# Prints the interpreter for the environment, unless PYTHON names one.
#
# Debian builds its interpreter with profile-guided optimization. Version managers do not by
# default, and the server then takes 5 to 20 % more CPU time.
set -euo pipefail

system=/usr/bin/python3

is_recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

is_complete() {
    is_recent "$1" && "$1" -c 'import ensurepip, venv' 2>/dev/null
}

is_optimized() {
    "$1" -c 'import sys, sysconfig
sys.exit("--enable-optimizations" not in sysconfig.get_config_var("CONFIG_ARGS"))' 2>/dev/null
}

# Debian's venv is a separate package. Installing it is worthwhile if no other interpreter works,
# or if it needs no password and makes the server faster.
is_worth_installing() {
    ! is_complete python3 || { ((EUID == 0)) && ! is_optimized python3; }
}

if is_complete "$system" || { is_recent "$system" && is_worth_installing; }; then
    echo "$system"
else
    echo python3
fi
