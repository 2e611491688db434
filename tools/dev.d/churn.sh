# shellcheck shell=bash
# churn: the memory pool beside classical allocators, and the engine, on one trace of creations and frees.

help_churn() {
  cat <<'TEXT'
usage: tools/dev churn [--minutes N] [--seed S] [--events N] [--peak GiB] [--arena FACTOR]

Five jobs with the tensors of real models create and free them, 10^6 events, at most 512 GiB live, and 22 % of that of
one job, by default. Each allocator gets the same trace: best fit, buddy, TLSF, blocks of 2 MiB alone, and tierd's pool,
the last also in an arena of 1.01 times the peak. Prints what each refuses although it has as many free bytes, and what
it holds for what lives, at worst: at the peak, and from half of it on, as after the end of a job.

Then the trace goes through the daemon's engine in simulated memory, with jobs, windows, leases and moves: in RAM
alone, in arenas of 1.25 and of 1.18 times the peak, in which each job is promised what the trace gives it; in RAM of
1.07 times the peak, with a fifth of the peak for each job; in huge pages, where whole blocks and all else lie in
windows of their own; and in RAM of half of the peak with SSD of 1.05 times the peak. Every tenth event a tensor drawn
from those that live is read, and at the end all are. "windows" is the most that all jobs' windows took, of the most
that lived; "of one job" the same of the job of 32 GiB or more for which it is most, when what was made ahead of its
need is given back. With --minutes it goes on with the next seeds. Exit status 1: the pool or the engine refused
something, or the whole windows of such a job took more than 1.01 of the most that it had (in the arena of 1.07 also
those of all jobs together: in others each keeps what it needed once until another one asks for it), or a tensor could
not be read.
TEXT
}

dev_churn() {
  dev_build release pool_churn
  run build/release/tests/perf/churn/pool_churn "$@"
}
