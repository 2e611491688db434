# shellcheck shell=bash
# What is looked at before the first download, in well under a second: disk, memory, compiler, io_uring; and what the
# phases will cost.

# io_uring: "yes", "no: reason" or "unknown".
io_uring_state() {
  local disabled=0
  if [[ -r /proc/sys/kernel/io_uring_disabled ]]; then
    disabled=$(</proc/sys/kernel/io_uring_disabled)
  fi
  if [[ $disabled == 2 ]] || { [[ $disabled == 1 ]] && ((EUID != 0)); }; then
    echo "no: kernel.io_uring_disabled is $disabled"
  elif [[ ! -x /usr/bin/python3 ]]; then
    echo "unknown until set-up"
  else
    /usr/bin/python3 - <<'PYTHON'
import ctypes, os
fd = ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(256))
print("yes" if fd >= 0 else "no: " + os.strerror(ctypes.get_errno()))
PYTHON
  fi
}

compiler_state() {
  if have g++-12; then
    echo "g++-12 present"
  elif ((EUID == 0)); then
    echo "g++-12 will be installed"
  else
    echo "g++-12 missing"
  fi
}

# Whether pip will take torch's CPU wheel; the index's default wheel brings CUDA libraries.
torch_for_cpu() {
  local place wheel
  for place in ${PIP_FIND_LINKS:-}; do
    for wheel in "$place/torch-${TORCH_REQUIREMENT#torch==}"+cpu-*.whl; do
      [[ -e $wheel ]] && return
    done
  done
  for place in ${PIP_INDEX_URL:-} ${PIP_EXTRA_INDEX_URL:-}; do
    [[ $place == */whl/cpu || $place == */whl/cpu/ ]] && return
  done
  return 1
}

torch_download() {
  if torch_for_cpu; then
    echo "0.2 GB, 0.9 GB on disk (the CPU wheel that pip is configured with)"
  else
    echo "about 3 GB with CUDA libraries, or 0.2 GB where PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL names a CPU wheel"
  fi
}

# What all phases take on disk: 4 GB for the demo's tier, the build, and torch; with CUDA libraries that is 3 GB in
# pip's cache and 7 GB unpacked.
demo_disk_mib() {
  if python_packages_present || torch_for_cpu; then
    echo 8192
  else
    echo 16384
  fi
}

disk_advice() {
  if python_packages_present || torch_for_cpu; then
    echo "free some, or clone elsewhere"
  else
    echo "free some, clone elsewhere, or name a CPU wheel of torch by PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL"
  fi
}

# scaled MINUTES: from the reference machine, 2 cores, to this one.
scaled() {
  awk -v minutes="$1" -v cores="$(nproc)" 'BEGIN {m = minutes * 2 / cores; printf "%.1f", m < 0.2 ? 0.2 : m}'
}

# preflight DISK_MIB MEMORY_MIB: prints what is there; ends with one sentence where something is missing.
preflight() {
  local disk_needed=$1 memory_needed=$2 disk memory uring compiler
  disk=$(disk_free_mib)
  memory=$(memory_available_mib)
  uring=$(io_uring_state)
  compiler=$(compiler_state)
  printf 'disk      %6d MiB free here, %d needed\n' "$disk" "$disk_needed"
  printf 'memory    %6d MiB available, %d needed; %d cores\n' "$memory" "$memory_needed" "$(nproc)"
  printf 'compiler  %s\n' "$compiler"
  printf 'io_uring  %s%s\n' "$uring" "$([[ $uring == no* ]] && echo ' (the slower thread pool will be used)')"
  ((disk >= disk_needed)) ||
    fail 1 "needs $disk_needed MiB of disk in $ROOT, there are $disk: $(disk_advice)"
  ((memory >= memory_needed)) ||
    fail 1 "needs $memory_needed MiB of available memory, there are $memory: end something"
  if [[ $(uname -sm) != "Linux x86_64" ]]; then
    fail 1 "runs on Linux x86_64; this is $(uname -sm)"
  fi
}

# One line a phase with its size and expected minutes on this machine; a phase that is done says so.
print_phases() {
  local missing debian="done" venv="done" build="done, or nearly" minutes=(0 0 0)
  mapfile -t missing < <(missing_packages "${BASE_PACKAGES[@]}")
  if ((${#missing[@]})); then
    debian="${#missing[@]} missing, 0.25 GB (1.1 GB on a bare system)"
    minutes[0]="0.5-2"
  fi
  if ! python_packages_present; then
    venv=$(torch_download)
    minutes[1]="0.5-3"
  fi
  if [[ ! -x build/release/daemon/tierd ]]; then
    build="0.4 GB on disk"
    minutes[2]=$(scaled 6)
  fi
  printf 'phase 1   Debian packages: %s; minutes: %s\n' "$debian" "${minutes[0]}"
  printf 'phase 2   Python packages: %s; minutes: %s\n' "$venv" "${minutes[1]}"
  printf 'phase 3   build: %s; minutes: %s\n' "$build" "${minutes[2]}"
  printf 'phase 4   the demo: up to 4 GB of disk, removed at the end; minutes: up to 4\n'
}
