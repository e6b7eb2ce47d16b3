# Sourced: the client programs of scripts/test-clients, in the data folder.
# shellcheck shell=bash

opencode_package="opencode-linux-x64@1.18.33"
openai_list="$root/scripts/packages-clients.txt"

# Each installs beside its place and moves there at the end, so that a download
# that breaks off leaves nothing half.
install_opencode() {
  local home="$data/clients/opencode-${opencode_package#*@}"
  [ ! -x "$home/node_modules/opencode-linux-x64/bin/opencode" ] || return 0
  [ "$(uname -m)" = x86_64 ] || die "$opencode_package is a program for x86_64"
  command -v npm >/dev/null || install_packages "$root/scripts/packages-npm.txt"
  say "installing $opencode_package from npm (185 MB)"
  rm -rf "$home" "$home.new"
  mkdir -p "$home.new"
  npm install --prefix "$home.new" --no-audit --no-fund --no-save --ignore-scripts \
    --fetch-timeout=60000 --fetch-retries=2 "$opencode_package" \
    >"$home.new/npm.log" 2>&1 </dev/null ||
    { tail -n 20 "$home.new/npm.log" >&2; die "npm cannot install $opencode_package"; }
  mv "$home.new" "$home"
}

install_openai() {
  local home="$data/clients/openai"
  ! cmp -s "$openai_list" "$home/packages.txt" || return 0
  say "installing the openai package into $home"
  rm -rf "$home"
  mkdir -p "$home"
  /usr/bin/python3 -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --timeout 20 --retries 2 --requirement "$openai_list" </dev/null ||
    die "the packages of $openai_list cannot be installed"
  cp "$openai_list" "$home/packages.txt"
}
