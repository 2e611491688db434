# shellcheck shell=bash
# churn: the memory pool beside classical allocators, on one trace of creations and frees.

help_churn() {
  cat <<'TEXT'
usage: tools/dev churn [--minutes N] [--seed S] [--events N] [--peak GiB] [--arena FACTOR]

Five jobs with the tensors of real models create and free them, 10^6 events and at most 512 GiB live by default; each
allocator gets the same trace: best fit, buddy, TLSF, blocks of 2 MiB alone, and tierd's pool, the last also in an arena
of 1.005 times the peak. Prints what each refuses although it has as many free bytes, and what it holds for what lives,
at worst: at the peak, and from half of it on, as after the end of a job. Pure bookkeeping: owners, windows, leases and
SSD are not in it. With --minutes it goes on with the next seeds. Exit status 1: the pool refused something, or held
more than 1.01 of what lives at the peak.
TEXT
}

dev_churn() {
  dev_build release pool_churn
  run build/release/tests/perf/churn/pool_churn "$@"
}
