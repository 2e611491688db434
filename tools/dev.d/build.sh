# shellcheck shell=bash
# build and clean: CMake presets into build/<preset>.

help_build() {
  cat <<'TEXT'
usage: tools/dev build [PRESET] [TARGET...]

Configures and builds build/PRESET. Presets: release (default), dev, asan (address and undefined behaviour), tsan.
With TARGETs, builds only those.
TEXT
}

dev_build() {
  local preset=${1:-release}
  [[ $# -gt 0 ]] && shift
  case $preset in
    release | dev | asan | tsan) ;;
    *) fail 2 "build: unknown preset '$preset'; one of: release dev asan tsan" ;;
  esac
  ensure_setup
  configure_preset "$preset"
  run cmake --build "build/$preset" -j "$(build_jobs)" ${1:+--target} "$@"
}

configure_preset() {
  if [[ ! -e build/$1/build.ninja ]]; then
    run cmake --preset "$1"
  fi
}

# The test binaries of the given kinds (folders of tests/), as Ninja targets.
test_targets() {
  local preset=$1 kinds=$2
  cmake "build/$preset" >/dev/null  # New folders are globbed at configure time.
  ninja -C "build/$preset" -t targets all |
    sed -nE "s#^(tests/($kinds)/[^]:[]+): C(XX)?_EXECUTABLE_LINKER.*#\1#p"
}

help_clean() {
  cat <<'TEXT'
usage: tools/dev clean [--all]

Removes build/ and dist/. --all removes .venv and .cache too, so that set-up starts from nothing.
TEXT
}

dev_clean() {
  case $# in
    0) run rm -rf build dist ;;
    *)
      [[ $# == 1 && $1 == --all ]] || fail 2 "clean: unknown arguments '$*'; see tools/dev clean --help"
      run rm -rf build dist .venv .cache
      ;;
  esac
}
