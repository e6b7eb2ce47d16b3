# Sourced: the arm64 packages of Highway and GoogleTest, unpacked beside the
# data and not installed.
# shellcheck shell=bash

arm_root="$data/arm64"
arm_packages=(libhwy-dev libhwy1 libgtest-dev libgmock-dev)

# apt with state of its own: the machine's list of architectures and its package
# lists stay as they are, and nobody needs to be root.
arm_apt() {
  local state="$1"
  shift
  apt-get -qq -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state/cache" \
    -o Dir::State::status=/dev/null -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
    -o "APT::Sandbox::User=$(id -un)" "$@"
}

fetch_arm_packages() {
  [ ! -d "$arm_root" ] || return 0
  mkdir -p "$data"
  arm_scratch="$(mktemp -d "$data/.arm64-XXXXXX")"
  trap 'rm -rf "$arm_scratch"' EXIT
  mkdir -p "$arm_scratch"/{lists,cache/archives}/partial "$arm_scratch/root"
  say "fetching ${arm_packages[*]} for arm64"
  arm_apt "$arm_scratch" update || die "apt-get update for arm64 failed"
  (cd "$arm_scratch" && arm_apt "$arm_scratch" download "${arm_packages[@]}") ||
    die "apt-get download for arm64 failed: ${arm_packages[*]}"
  local package
  for package in "$arm_scratch"/*.deb; do dpkg -x "$package" "$arm_scratch/root"; done
  mv "$arm_scratch/root" "$arm_root"
  rm -rf "$arm_scratch"
  trap - EXIT
}
