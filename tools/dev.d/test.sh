# shellcheck shell=bash
# test: builds and runs every test, and ends with one line of counts. What a phase found is in build/reports/*.xml.

help_test() {
  cat <<'TEXT'
usage: tools/dev test [--full] [--full-tools] [--only PHASE]...

Builds release and runs all of its tests (ctest, pytest); builds with the address and undefined-behaviour sanitizers and
runs the unit and property tests; gives every parser of outside bytes mutated input and the simulator fresh seeds for
some seconds. Ends with counts, the reasons of skipped tests, and `N passed, N failed, N skipped`.

  --full         adds the thread sanitizer, 10,000 seeds of the simulator (TIERD_SIMULATION_SEEDS), and the fuzzers: 5
                 minutes each for ring and handshake, 1 for the others (TIERD_FUZZ_SECONDS each)
  --full-tools   runs `setup --full` first, so that fewer tests are skipped
  --only PHASE   only this phase: release, python, asan, slice, tsan, simulation, fuzz (may be repeated)
TEXT
}

readonly REPORTS=build/reports

dev_test() {
  local phases=() full=0
  while (($#)); do
    case $1 in
      --full) full=1 ;;
      --full-tools) dev_setup --full ;;
      --only)
        phases+=("${2:?--only needs a phase}")
        shift
        ;;
      *) fail 2 "test: unknown option '$1'; see tools/dev test --help" ;;
    esac
    shift
  done
  if ((${#phases[@]} == 0)); then
    phases=(release python asan slice)
    ((full)) && phases+=(tsan simulation fuzz)
  fi
  ensure_setup
  rm -rf "$REPORTS"
  mkdir -p "$REPORTS"
  local phase
  for phase in "${phases[@]}"; do
    case $phase in
      release | python | asan | slice | tsan | simulation | fuzz) run_phase "$phase" ;;
      *) fail 2 "test: unknown phase '$phase'; one of: release python asan slice tsan simulation fuzz" ;;
    esac
  done
  run .venv/bin/python tools/dev.d/count_tests.py --minutes "$(minutes_so_far)" "$REPORTS"
}

# A phase that fails before its tests ran (a build error) still counts: as one failure named after the phase.
run_phase() {
  local phase=$1 before=$SECONDS
  say "test: $phase"
  # Not in an `if`: bash would ignore -e inside.
  set +e
  (set -e; "test_$phase")
  local status=$?
  set -e
  printf '%s %d %d\n' "$phase" "$status" $((SECONDS - before)) >>"$REPORTS/phases.txt"
}

run_ctest() {
  local preset=$1 report=$2
  shift 2
  run ctest --test-dir "build/$preset" -j "$(nproc)" --output-on-failure --no-tests=error \
    --output-junit "$ROOT/$REPORTS/$report.xml" --quiet -O "$ROOT/$REPORTS/$report.log" "$@" ||
    { tail -n 300 "$REPORTS/$report.log"; return 1; }
  tail -n 3 "$REPORTS/$report.log"
}

test_release() {
  dev_build release
  run_ctest release ctest-release
}

test_python() {
  dev_build release
  setup_packaging || say "the tools of .cache/packaging could not be installed; tests of the wheel will be skipped"
  # A test that hangs must not take the whole run with it. Most of them wait for daemons and clients much of their time.
  local processes
  processes=$(nproc)
  processes=$((processes < 4 ? processes : 4))
  with_build_tree run timeout --foreground --kill-after=30 1800 \
    .venv/bin/python -m pytest -q -ra -n "$processes" --dist loadfile --junitxml "$REPORTS/pytest.xml"
}

# Only the binaries that will run: the sanitizer builds are the slow ones.
build_sanitized_tests() {
  local preset=$1 targets
  configure_preset "$preset"
  mapfile -t targets < <(test_targets "$preset" 'unit|property')
  run cmake --build "build/$preset" -j "$(build_jobs)" --target "${targets[@]##*/}"
}

test_asan() {
  build_sanitized_tests asan
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:detect_leaks=1"
  export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
  run_ctest asan ctest-asan -L '^(unit|property)$'
}

# gRPC and abseil are not instrumented: what they order looks unordered to the thread sanitizer, and a suppression list
# would hide races of ours. Suites that speak gRPC are left out; ASan runs them.
readonly GRPC_SUITES='^(CallsTest|ConnectionTest|CrowdedServer|GrpcServerTest|IdentityServersTest|'\
'Kinds/ControlDescriptors|ListJobsTest|ListPages|OwnerCalls|Settings|StructSizeTest|WatchStreamTest|WatchTest)\.'

test_tsan() {
  build_sanitized_tests tsan
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1"
  say "left out under the thread sanitizer: $GRPC_SUITES (gRPC is not instrumented)"
  run_ctest tsan ctest-tsan -L '^(unit|property)$' -E "$GRPC_SUITES"
}

# What is different in every run: mutated input for the parsers, with the sanitizers of the asan phase, and the long
# simulator, which checks itself in every build. A finding is had again by the command that it prints.
readonly SLICE_SECONDS=5 SIMULATOR_SECONDS=20

test_slice() {
  local seed slices slice failed=0
  seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
  say "slice: seed $seed"
  configure_preset asan
  mapfile -t slices < <(test_targets asan fuzz | grep '_slice$')
  run cmake --build build/asan -j "$(build_jobs)" --target "${slices[@]##*/}"
  dev_build release tier_sim
  for slice in "${slices[@]}"; do
    run "build/asan/$slice" "$seed" "$SLICE_SECONDS" || failed=1
  done
  run build/release/tests/sim/tier_sim --mixed --seed "$seed" --seeds 1000000 --seconds "$SIMULATOR_SECONDS" || failed=1
  return "$failed"
}

# One run of the simulator for each processor, each with seeds of its own.
test_simulation() {
  local seed seeds=${TIERD_SIMULATION_SEEDS:-10000} runs each run failed=0 started=()
  seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
  runs=$(nproc)
  each=$(((seeds + runs - 1) / runs))
  dev_build release tier_sim
  say "simulation: $runs times $each seeds from $seed"
  for ((run = 0; run < runs; ++run)); do
    build/release/tests/sim/tier_sim --mixed --seed $((seed + run * each)) --seeds "$each" \
      >"$REPORTS/simulation-$run.log" 2>&1 &
    started+=($!)
  done
  for run in "${!started[@]}"; do
    wait "${started[run]}" || failed=1
    tail -n 5 "$REPORTS/simulation-$run.log"
  done
  return "$failed"
}

test_fuzz() {
  local failed=0 binary seconds
  configure_fuzz
  for binary in $(fuzz_binaries); do
    case ${binary##*/} in
      fuzz_ring | fuzz_handshake) seconds=300 ;;
      *) seconds=60 ;;
    esac
    dev_fuzz "${binary##*/}" "${TIERD_FUZZ_SECONDS:-$seconds}" || failed=1
  done
  return "$failed"
}
