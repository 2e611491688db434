# shellcheck shell=bash
# How tools/dev speaks: every command it runs is printed first, to stderr, so that stdout stays the command's own.

# run COMMAND...: prints the command so that it can be pasted, then runs it.
run() {
  printf '+' >&2
  printf ' %q' "$@" >&2
  printf '\n' >&2
  "$@"
}

# say TEXT: a heading between commands.
say() {
  printf '== %s\n' "$*" >&2
}

# fail STATUS TEXT: one sentence that says what to do, then the end.
fail() {
  local status=$1
  shift
  printf 'tools/dev: %s\n' "$*" >&2
  exit "$status"
}

have() {
  command -v "$1" >/dev/null 2>&1
}

# Seconds since the script began, as minutes with one decimal.
minutes_so_far() {
  printf '%d.%d' $((SECONDS / 60)) $((SECONDS % 60 / 6))
}

memory_available_mib() {
  awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo
}

disk_free_mib() {
  df -Pm "${1:-$ROOT}" | awk 'NR == 2 {print $4}'
}

# Compilers at once: one a core, and 1.5 GiB each (gRPC's headers need it under a sanitizer).
build_jobs() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(($(memory_available_mib) / 1536))
  if ((memory_jobs < 1)); then
    memory_jobs=1
  fi
  echo $((cores < memory_jobs ? cores : memory_jobs))
}
