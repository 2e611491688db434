#!/bin/bash
# What an administrator does to a service while a trainer swaps, for test_under_load.py: the trainer must not see it.
# /drill/figures has a line for each step: what, how many requests were answered meanwhile, how many failed.
# shellcheck source=tests/deploy/drill_steps.sh
source /drill/drill_steps.sh

# Of `rounds requests failures`.
progress() {
  cut -d' ' -f"$1" /drill/load/progress 2>/dev/null || echo 0
}

# The trainer has finished so many rounds more than it had at the call.
goes_on() {
  local wanted=$(($(progress 1) + $1))
  for _ in $(seq 600); do
    kill -0 "$trainer" 2>/dev/null || return 1
    (($(progress 1) >= wanted)) && return 0
    sleep 0.1
  done
  return 1
}

# under_load NAME COMMAND: the same daemon and the same job serve before, meanwhile and afterwards.
under_load() {
  local name=$1 before requests
  shift
  before=$(main_pid)
  goes_on 1 || return 1
  requests=$(progress 2)
  "$@" || return 1
  goes_on 3 || return 1
  echo "$name: $(($(progress 2) - requests)) requests, $(progress 3) failed" >>/drill/figures
  [[ $(progress 3) == 0 && $(main_pid) == "$before" ]] && session_is_there
}

session_is_there() {
  [[ $(tierctl job list | grep -c under-load) == 1 ]] || return 1
  ! journalctl -u tierd --no-pager | grep -E 'session_(ended|revoked)'
}

# tierctl status ends with 6 on a machine that is degraded, and while it drains.
reload_with_more() {
  cat /drill/tierd.toml - <<<$'[log]\nlevel = "debug"\n[quota.default]\nram = "64MiB"' >/etc/tierd/tierd.toml
  systemctl reload tierd || return 1
  for _ in $(seq 100); do
    journalctl -u tierd --no-pager | grep -F 'log.level is "debug"' && return 0
    sleep 0.1
  done
  return 1
}

drain_and_undrain() {
  tierctl drain && tierctl status | grep -i draining && goes_on 2 && tierctl undrain
}

trainer_ends_well() {
  touch /drill/load/stop
  wait "$trainer"
}

apt-get install -y /drill/tierd.deb
cp /drill/tierd.toml /etc/tierd/tierd.toml
step "the service starts" systemctl enable --now tierd
install -d -o 54321 /drill/load
as_another_user "$PYTHON" /drill/load_script.py /drill/load &
trainer=$!
step "a trainer swaps" goes_on 2
step "a reload under load" under_load "reload" reload_with_more
step "a drain and undrain under load" under_load "drain and undrain" drain_and_undrain
step "an upgrade under load" under_load "upgrade of the package" upgrade 99.1
step "the trainer ends well" trainer_ends_well
