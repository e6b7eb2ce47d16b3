# Sourced: the CUDA compiler and cuBLAS. An installed CUDA Toolkit of 13.0 or
# later is used as it is (cmake/cuda.cmake finds it); otherwise wheels of
# scripts/packages-cuda.txt go into the data folder.
# shellcheck shell=bash

cuda_list="$root/scripts/packages-cuda.txt"

# Prints the nvcc of an installed toolkit that is new enough.
installed_nvcc() {
  local nvcc major
  for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    major="$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')"
    if [ "${major:-0}" -ge 13 ]; then
      echo "$nvcc"
      return 0
    fi
  done
  return 1
}

# nvcc's profile looks for lib64, linkers for names without a version.
link_cuda_names() {
  local toolkit="$1" library
  ln -sfn lib "$toolkit/lib64"
  for library in "$toolkit"/lib/*.so.*; do
    ln -sf "$(basename "$library")" "${library%.so.*}.so"
  done
}

# Installs beside the old folder and swaps at the end, so that a download that
# breaks off leaves what was there.
install_cuda() {
  local home="$data/cuda" nvcc
  if nvcc="$(installed_nvcc)"; then
    say "the CUDA Toolkit is installed: $nvcc"
    return 0
  fi
  if cmp -s "$cuda_list" "$home/packages.txt"; then
    return 0
  fi
  say "no CUDA Toolkit of 13.0 or later: installing its compiler and cuBLAS into $home"
  rm -rf "$home.new"
  mkdir -p "$home.new"
  /usr/bin/python3 -m venv "$home.new/venv"
  "$home.new/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: --timeout 20 --retries 2 --requirement "$cuda_list" </dev/null ||
    die "the wheels of $cuda_list cannot be installed"
  local toolkit
  toolkit="$(echo "$home.new"/venv/lib/python3*/site-packages/nvidia/cu13)"
  [ -x "$toolkit/bin/nvcc" ] || die "the wheels of $cuda_list hold no nvcc"
  link_cuda_names "$toolkit"
  ln -s "${toolkit#"$home.new/"}" "$home.new/toolkit"
  cp "$cuda_list" "$home.new/packages.txt"
  rm -rf "$home"
  mv "$home.new" "$home"
}
