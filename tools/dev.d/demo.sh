# shellcheck shell=bash
# demo: from nothing to a network training with its optimizer state and activations in tierd.

help_demo() {
  cat <<'TEXT'
usage: tools/dev demo [OPTIONS of the demo]

Looks at disk, memory, compiler and io_uring, prints what each phase will cost, sets up, builds, and trains a byte-level
GPT twice: by itself, and with its optimizer state and activations in a private tierd whose arena holds a quarter of
them. Exit 0 only when the losses of both runs are the same bit for bit and every optimizer state came back from SSD.
Options are passed on; `tools/dev demo -- --help` lists them.
TEXT
}

dev_demo() {
  if [[ ${1:-} == -- ]]; then
    shift
  fi
  preflight 8192 4096
  print_phases
  ensure_setup
  dev_build release tierd tierctl tier tier_python_descriptors
  say "the demo; everything before took $(minutes_so_far) minutes"
  with_build_tree run .venv/bin/python bindings/python/demo/train_gpt.py "$@"
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
