# Sourced by the scripts: where things are, messages, the system's python3.
# shellcheck shell=bash

set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
data="${XDG_DATA_HOME:-$HOME/.local/share}/holdfast"
export root data

say() { printf '%s\n' "holdfast: $*"; }

die() {
  printf '%s\n' "holdfast: $*" >&2
  exit 1
}

# Prints the comment block at the top of the calling script.
usage() {
  sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$1"
}

# run_python MODULE ARGUMENTS...: replaces the shell by a module of
# scripts/lib/holdfast. Debian's python3, not one that comes first on PATH.
run_python() {
  export PYTHONPATH="$root/scripts/lib"
  exec /usr/bin/python3 -B -s -m "holdfast.$1" "${@:2}"
}

# Configures once (ninja configures again by itself) and builds.
build_release() {
  local log="$root/build/configure.log"
  mkdir -p "$root/build"
  if [ ! -f "$root/build/release/build.ninja" ]; then
    cmake --preset release -S "$root" >"$log" 2>&1 </dev/null ||
      { cat "$log" >&2; die "configuring failed"; }
  fi
  cmake --build "$root/build/release" -j "$(nproc)"
}
