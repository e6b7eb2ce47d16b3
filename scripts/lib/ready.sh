# Sourced: whatever a script needs before it can start the daemons.
# shellcheck shell=bash

source "$root/scripts/lib/packages.sh"
source "$root/scripts/lib/demo_model.sh"

make_ready() {
  local log="$root/build/build.log"
  mkdir -p "$root/build"
  install_packages
  fetch_demo_model
  [ -f "$root/build/release/build.ninja" ] ||
    say "building; this takes some minutes the first time (log: $log)"
  build_release >"$log" 2>&1 ||
    { tail -n 40 "$log" >&2; die "the build failed ($log)"; }
}
