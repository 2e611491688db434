# shellcheck shell=bash
# bench: every speed as a table and as JSON lines, each with its ceiling measured in the same run.

help_bench() {
  cat <<'TEXT'
usage: tools/dev bench [PART...] [OPTIONS of the bench]

Builds release and measures memory, latency, SSD and step-time figures beside their ceilings: all parts, or those named.
The table goes to the terminal, JSON lines to build/reports/bench.jsonl. Parts and options are passed on;
`tools/dev bench -- --help` lists them, and builds nothing.

  tools/dev bench train [--model MODEL] [--ram SIZE] [--peers] [--arm ARM]... [--quick]
           fine-tuning: plain torch, tierd with an arena of SIZE, with --peers DeepSpeed (CPU; NVMe by default, tuned by
           hand, pipelined), step by step in turn; each ARM alone if some are named

Where its model is in tierd, a process is started as docs/training.md says; --malloc gives all one allocator.
--peers also installs DeepSpeed into .cache/peers and builds its operators there, once (about five minutes).
TEXT
}

dev_bench() {
  if [[ ${1:-} == -- ]]; then
    shift
  fi
  check_options tools/bench/options.py "$@"
  dev_build release tierd tierctl tier tier_python_descriptors tier_bench
  setup_fio
  if [[ " $* " == *" --peers "* ]]; then
    setup_peers
  fi
  mkdir -p build/reports
  with_build_tree run .venv/bin/python tools/bench/run.py --json build/reports/bench.jsonl "$@"
}
