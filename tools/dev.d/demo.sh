# shellcheck shell=bash
# demo: from nothing to a network training with its optimizer state and activations in tierd.

help_demo() {
  cat <<'TEXT'
usage: tools/dev demo [OPTIONS of the demo]

Looks at disk, memory, compiler and io_uring, prints what each phase will cost, sets up, builds, and trains a byte-level
GPT twice: in plain torch, and by offload(model) in a private tierd whose arena holds an eighth of its optimizer
states. Exit 0 only when the losses of both runs are the same bit for bit and every optimizer state came back from SSD.
Options are passed on; `tools/dev demo -- --help` lists them, and builds nothing.
TEXT
}

dev_demo() {
  if [[ ${1:-} == -- ]]; then
    shift
  fi
  check_options bindings/python/demo/options.py "$@"
  preflight "$(demo_disk_mib)" 4096
  print_phases
  ensure_setup
  dev_build release tierd tierctl tier tier_python_descriptors
  say "the demo; everything before took $(minutes_so_far) minutes"
  with_build_tree run .venv/bin/python bindings/python/demo/train_gpt.py "$@"
  say "the demo succeeded; read next: docs/quick-start.md (a tensor, a service), docs/training.md (a model of your own)"
}

# check_options SCRIPT OPTION...: ends here with the help that was asked for, or with what is wrong, before minutes of
# set-up. The script needs Python alone; on a machine without it the options are checked later, where they are used.
check_options() {
  local script=$1 option
  shift
  if have python3; then
    with_build_tree python3 "$script" "$@" || exit $?
  fi
  for option in "$@"; do
    if [[ $option == -h || $option == --help ]]; then
      have python3 || fail 1 "the options are listed by python3, which is missing; tools/dev setup installs it"
      exit 0
    fi
  done
}

# with_build_tree COMMAND...: Python finds the package in the source tree, and the package its library and daemon in
# the build tree.
with_build_tree() {
  (
    export PYTHONPATH="$ROOT/bindings/python${PYTHONPATH:+:$PYTHONPATH}"
    export TIERD_BUILD="$ROOT/build/release"
    "$@"
  )
}
