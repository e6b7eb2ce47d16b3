# Sourced: installing the Debian packages that a file like
# scripts/packages.txt lists.
# shellcheck shell=bash

missing_packages() {
  local list="$1" wanted
  mapfile -t wanted < <(grep -v '^#' "$list")
  # Not installed and unknown packages alike are absent from this list.
  comm -23 <(printf '%s\n' "${wanted[@]}" | LC_ALL=C sort) \
    <(dpkg-query -W -f='${db:Status-Abbrev}|${binary:Package}\n' 2>/dev/null |
      sed -n 's/^.i |\([^:]*\).*/\1/p' | LC_ALL=C sort -u)
}

# install_packages [FILE]: runs apt only when something is missing.
install_packages() {
  local list="${1:-$root/scripts/packages.txt}"
  command -v dpkg-query >/dev/null ||
    die "this is no Debian or Ubuntu: install what $list names by hand"
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$list")
  [ "${#missing[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "packages are missing; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq ||
    die "apt-get update failed; packages still missing: ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null ||
    die "apt-get install failed; packages still missing: ${missing[*]}"
}
