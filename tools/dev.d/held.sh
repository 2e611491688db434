# shellcheck shell=bash
# held: what jobs hold of the arena for what they ask.

help_held() {
  cat <<'TEXT'
usage: tools/dev held [--models-only] [--arena GiB]... [--jobs N] [--sessions N]

The engine of the daemon in simulated memory. Prints what each of several models' training states holds, in whole
windows, for the bytes that it asks for, in an arena of 1.25 times these and in one of 512 GiB; then nodes of 64 to 8192
GiB full of 64 jobs: their windows, the job that holds most for what it asks, and the engine's own tables. Exit status
1: a model holds more than 1.005 of what it asks for (below 1 GiB: 1.02), or a node has not windows enough.
TEXT
}

dev_held() {
  dev_build release pool_held
  run build/release/tests/perf/held/pool_held "$@"
}
