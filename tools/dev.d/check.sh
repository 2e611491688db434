# shellcheck shell=bash
# check, fmt, tidy: what a reviewer's eye should not be spent on.

readonly CXX_GLOBS=('*.cc' '*.h' '*.hpp' '*.c')

help_check() {
  cat <<'TEXT'
usage: tools/dev check

The style test (layers, sizes, names, dead files), clang-format, ruff, shellcheck, mypy --strict over the package,
clang's proof of who holds which lock (-Wthread-safety) over the daemon, libtier and other sources that use
proto/mutex.h, and clang-tidy over the sources changed since the last commit. A tool that is missing is named and passed
over; `tools/dev setup --full` brings them all.
TEXT
}

dev_check() {
  ensure_setup
  local failed=0
  run .venv/bin/python -m pytest -q tests/style || failed=1
  check_format || failed=1
  run .venv/bin/ruff check --quiet . || failed=1
  run .venv/bin/ruff format --quiet --check . || failed=1
  check_shell || failed=1
  check_types || failed=1
  check_locks || failed=1
  if have clang-tidy-19 && [[ -e build/release/compile_commands.json ]]; then
    dev_tidy || failed=1
  else
    say "clang-tidy-19 or build/release is missing: tidy passed over"
  fi
  ((failed == 0)) || fail 1 "check: something above needs fixing"
  say "check: all good"
}

# Sources git knows or would know: tracked, and new ones that are not ignored.
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ -e $file ]] && echo "$file"
  done
}

check_format() {
  if ! have clang-format-19; then
    say "clang-format-19 is missing: format passed over"
    return
  fi
  local files
  mapfile -t files < <(sources "${CXX_GLOBS[@]}")
  say "clang-format over ${#files[@]} files"
  clang-format-19 --dry-run --Werror "${files[@]}"
}

check_shell() {
  if ! have shellcheck; then
    say "shellcheck is missing: shell scripts passed over"
    return
  fi
  local files
  mapfile -t files < <(sources '*.sh' tools/dev .ci/run deploy/deb/postinst deploy/deb/prerm deploy/deb/postrm)
  run shellcheck -x "${files[@]}"
}

check_locks() {
  if ! have clang++-19 || [[ ! -e build/release/compile_commands.json ]]; then
    say "clang++-19 or build/release is missing: thread safety passed over"
    return
  fi
  run .venv/bin/python tools/dev.d/thread_safety.py --jobs "$(build_jobs)"
}

check_types() {
  MYPYPATH=bindings/python:deploy/licences run .venv/bin/python -m mypy --strict \
    tools/dev.d/count_tests.py tools/dev.d/configuration_page.py tools/dev.d/thread_safety.py \
    tools/bench/run.py tools/bench/memory_group.py tools/bench/scrape.py tools/faults/*.py deploy/licences/*.py \
    bindings/python/build_wheel.py tools/tierctl/json_page.py tools/docs/*.py \
    tests/style tests/dev tests/deploy/*.py tests/e2e/launcher.py tests/e2e/page_blocks.py tests/e2e/shell_words.py \
    tests/e2e/torch_programs.py
  # By itself: tools/bench has a module of one of these names.
  (cd deploy/grafana && run "$ROOT/.venv/bin/python" -m mypy --strict ./*.py)
  if [[ -d bindings/python/tierd ]]; then
    (cd bindings/python && run "$ROOT/.venv/bin/python" -m mypy --strict -p tierd)
  fi
}

help_fmt() {
  cat <<'TEXT'
usage: tools/dev fmt [FILE...]

Rewrites the C and C++ sources (or the FILEs) by .clang-format, and the Python sources by ruff.toml.
TEXT
}

dev_fmt() {
  ensure_setup
  have clang-format-19 || fail 1 "fmt: clang-format-19 is missing; tools/dev setup --full installs it"
  local files=("$@")
  if (($# == 0)); then
    mapfile -t files < <(sources "${CXX_GLOBS[@]}")
    run .venv/bin/ruff check --quiet --fix . || say "ruff found what it cannot fix; tools/dev check lists it"
    run .venv/bin/ruff format --quiet .
  fi
  say "clang-format over ${#files[@]} files"
  clang-format-19 -i "${files[@]}"
}

help_tidy() {
  cat <<'TEXT'
usage: tools/dev tidy [--all | FILE...]

clang-tidy by .clang-tidy over the sources that differ from the last commit, over --all of them (about 7 s of CPU each),
or over the FILEs. Needs build/release.
TEXT
}

dev_tidy() {
  have clang-tidy-19 || fail 1 "tidy: clang-tidy-19 is missing; tools/dev setup --full installs it"
  [[ -e build/release/compile_commands.json ]] || fail 1 "tidy: run tools/dev build first"
  local files=("$@")
  if [[ ${1:-} == --all ]]; then
    mapfile -t files < <(sources '*.cc' ':!examples')  # Built against an installed tierd.
  elif (($# == 0)); then
    mapfile -t files < <(git diff --name-only HEAD -- '*.cc'; git ls-files --others --exclude-standard -- '*.cc')
  fi
  if ((${#files[@]} == 0)); then
    say "tidy: no changed source"
    return
  fi
  printf '%s\n' "${files[@]}" | run xargs -P "$(build_jobs)" -n 4 clang-tidy-19 -p build/release --quiet
}
