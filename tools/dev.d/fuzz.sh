# shellcheck shell=bash
# fuzz: libFuzzer with address and undefined-behaviour sanitizers over the parsers of outside bytes.

help_fuzz() {
  cat <<'TEXT'
usage: tools/dev fuzz [TARGET|all] [SECONDS]

Builds the fuzz targets of tests/fuzz with clang 19 into build/fuzz and runs TARGET (default: all) for SECONDS each
(default 60), from its corpus (tests/fuzz/corpus/TARGET). Findings land in build/fuzz/findings.
TEXT
}

dev_fuzz() {
  local target=${1:-all} seconds=${2:-60} name binary failed=0
  configure_fuzz
  mapfile -t binaries < <(fuzz_binaries)
  ((${#binaries[@]})) || fail 1 "fuzz: no fuzz target in tests/fuzz"
  [[ $target == all || " ${binaries[*]##*/} " == *" $target "* ]] ||
    fail 2 "fuzz: unknown target '$target'; one of: ${binaries[*]##*/}"
  run cmake --build build/fuzz -j "$(build_jobs)" --target "${binaries[@]##*/}"
  for binary in "${binaries[@]}"; do
    name=${binary##*/}
    if [[ $target == all || $target == "$name" ]]; then
      fuzz_one "$binary" "$name" "$seconds" || failed=1
    fi
  done
  return "$failed"
}

configure_fuzz() {
  have clang++-19 || dev_setup --full
  have clang++-19 || fail 1 "fuzz: clang++-19 is missing; tools/dev setup --full installs it"
  if [[ ! -e build/fuzz/build.ninja ]]; then
    run cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
      -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 \
      -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
      "-DCMAKE_CXX_FLAGS=-Wno-error -fsanitize=fuzzer-no-link" -DTIER_BUILD_FUZZERS=ON -DTIER_SANITIZE=address,undefined
  fi
}

fuzz_binaries() {
  test_targets fuzz fuzz | grep -vE '_(test|slice)$'
}

fuzz_one() {
  local binary=$1 name=$2 seconds=$3 corpora=("build/fuzz/corpus/$2" "tests/fuzz/corpus/$2")
  mkdir -p "build/fuzz/corpus/$name" build/fuzz/findings
  run "build/fuzz/$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$name-" "${corpora[@]}"
}
