# shellcheck shell=bash
# held: what jobs hold of the arena for what they ask.

help_held() {
  cat <<'TEXT'
usage: tools/dev held [--models-only | --nodes-only] [--populated GiB]... [--arena GiB]... [--jobs N] [--sessions N]

The engine of the daemon in simulated memory. Prints what each of several models' training states holds, in whole
windows, for the bytes that it asks for, in an arena of 1.25 times these and in one of 512 GiB; then nodes of 512 and
4096 GiB with four jobs of 64 GiB, to which one of 600 MiB and another one of 64 GiB come, with tensors of three sizes;
then nodes of 64 to 8192 GiB full of 64 jobs with 1,000 sessions, which then free a third of it and ask for other sizes:
their windows, the job that holds most for what it asks, and the engine's own tables. Exit status 1: a job holds more
than 1.005 of what it asks for (below 1 GiB: 1.02), on the full nodes more than it may, or one of these has more than
8,000 windows; the ratios there are printed alone.
TEXT
}

dev_held() {
  dev_build release pool_held
  run build/release/tests/perf/held/pool_held "$@"
}
