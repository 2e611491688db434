#!/bin/bash
# What the pages type for the installed service, for test_service_pages.py: each block is /drill/NAME.sh, as it stands
# on its page. An administrator types where the package lies.
# shellcheck source=tests/deploy/drill_steps.sh
source /drill/drill_steps.sh

# typed NAME [LINE]: the block, or one line of it, which ends at the first failure; /drill/answer has what it printed.
# Questions are answered with yes.
typed() {
  local text status=0
  text=$(cat "/drill/$1.sh")
  [[ $# == 1 ]] || text=$(sed -n "$2p" "/drill/$1.sh")
  (cd /drill/here && yes 2>/dev/null | PATH=/drill/programs:$PATH bash -eux -c "$text" >/drill/answer) || status=$?
  cat /drill/answer
  return "$status"
}

answer_has() {
  grep -F -e "$1" /drill/answer
}

# until_holds COMMAND: within ten seconds.
until_holds() {
  for _ in $(seq 100); do
    "$@" && return 0
    sleep 0.1
  done
  return 1
}

swaps() {
  as_another_user "$PYTHON" /drill/swap_script.py 2
}

installs_and_starts() {
  typed install && systemctl is-active --quiet tierd && systemctl is-enabled --quiet tierd
}

checks_and_restarts() {
  local before
  before=$(main_pid)
  printf '[arena]\nmaximum = "256MiB"\n[ssd]\nfile_size = "3GiB"\n' >/etc/tierd/tierd.toml
  typed check && systemctl is-active --quiet tierd && [[ $(main_pid) != "$before" ]]
}

# The second line sees what the first one set, and no more once the third is typed.
sets_until_the_reload() {
  typed set 1 && typed set 2 && answer_has engine.write_behind || return 1
  typed set 3 && typed set 2 && ! answer_has engine.write_behind
}

links_each_alert() {
  typed links && grep -q 'runbook_url: https://DOCS/runbooks/TierdDown.html' /drill/here/rules.yml
}

# A mistake in the configuration: what the page types shows it. Once it is repaired, the last line starts the service.
shows_a_mistake() {
  printf '[arena]\nmaximun = "1GiB"\n' >/etc/tierd/tierd.toml
  ! systemctl restart tierd && until_holds systemctl is-failed --quiet tierd || return 1
  typed failed 1 && answer_has tierd.service && typed failed 2 && answer_has /etc/tierd/tierd.toml:2: || return 1
  ! typed failed 3
}

repaired_it_starts() {
  printf '[arena]\nmaximum = "256MiB"\n[ssd]\nfile_size = "3GiB"\n' >/etc/tierd/tierd.toml
  typed failed 3 && typed failed 4 && systemctl is-active --quiet tierd
}

# The socket is there while no daemon is, and a client that comes then is served.
socket_outlives_the_daemon() {
  typed socket && systemctl is-active --quiet tierd.socket tierd || return 1
  systemctl stop tierd && [[ -S /run/tierd/tierd.sock ]] && swaps
}

trainer_builds_and_trains() {
  chown -R 54321:54321 /drill/mlp
  (cd /drill/mlp && as_another_user env CXX=g++-12 bash -eux /drill/mlp.sh)
}

# What runbooks look at beside the daemon's own figures is there.
is_looked_at() {
  local line
  while read -r line; do
    bash -euc "$line" </dev/null || [[ $line == "systemctl status"* ]] || return 1
  done </drill/looked_at
}

# runs_anew PID: another process than that one serves.
runs_anew() {
  [[ $(main_pid) != 0 && $(main_pid) != "$1" ]] && systemctl is-active --quiet tierd
}

tells_of_a_crash() {
  local before
  before=$(main_pid)
  kill -9 "$before" && until_holds runs_anew "$before" && typed restarted && answer_has "code=killed"
}

# It is off until an administrator turns it on.
timer_is_listed() {
  ! systemctl is-enabled --quiet tierd-smart.timer && typed watch_health && typed smart && answer_has tierd-smart.timer
}

node_is() {
  tierctl --json status | grep -F "\"draining\": $1"
}

# The daemon is restarted once the last process has left, and not before.
drain_waits_for_the_last_process() {
  local before client drain
  before=$(main_pid)
  mkfifo -m 666 /drill/attached /drill/leave
  as_another_user "$PYTHON" /drill/attached_script.py /drill/attached /drill/leave &
  client=$!
  read -r -t 60 _ <>/drill/attached || return 1
  typed drain &
  drain=$!
  until_holds node_is true && kill -0 "$drain" && [[ $(main_pid) == "$before" ]] || return 1
  timeout 60 sh -c 'echo go >/drill/leave' && wait "$client" && wait "$drain" || return 1
  [[ $(main_pid) != "$before" ]] && systemctl is-active --quiet tierd && node_is false
}

empties_a_device() {
  printf '[arena]\nmaximum = "256MiB"\n[ssd]\nfile_size = "1GiB"\ndevices = ["%s/one.ssd", "%s/two.ssd"]\n' \
    /var/lib/tierd /var/lib/tierd >/etc/tierd/tierd.toml
  systemctl restart tierd && typed device || return 1
  grep -E 'two\.ssd .*(draining|drained)$' /drill/answer && swaps
}

has_no_job() {
  tierctl --json status | grep -F '"job_count": 0,'
}

upgrades() {
  local before
  before=$(main_pid)
  rm /drill/here/tierd_*.deb && cp /drill/tierd-99.1.deb /drill/here/tierd_99.1_amd64.deb || return 1
  until_holds has_no_job && typed upgrade || return 1
  [[ $(dpkg-query --show --showformat='${Version}' tierd) == 99.1 && $(main_pid) != "$before" ]]
}

removal_keeps_what_lies_on_ssd() {
  typed uninstall 1 && ! systemctl is-active --quiet tierd && ! command -v tierctl || return 1
  [[ -e /var/lib/tierd/one.ssd && -e /etc/tierd/tierd.toml ]] && id tierd
}

installed_again_it_finds_them() {
  typed install && tierctl device list | grep -F one.ssd && typed uninstall 1
}

purge_deletes_it() {
  typed uninstall 2 && [[ ! -e /etc/tierd && -z $(ls -A /var/lib/tierd 2>/dev/null) ]] && ! getent passwd tierd
}

# This is root already, and has no sudo. tierctl ends with 6 where the daemon is degraded, as where a right is missing.
install -D -m 755 /dev/stdin /drill/programs/sudo <<<$'#!/bin/sh\nexec "$@"'
install -D -m 755 /dev/stdin /drill/programs/tierctl <<<$'#!/bin/sh\n/usr/bin/tierctl "$@"\ns=$?\n[ $s = 6 ] || exit $s'
mkdir /drill/here && cp /drill/tierd.deb /drill/here/tierd_0_amd64.deb

step "the package installs and the service starts" installs_and_starts
step "a client swaps" swaps
step "its configuration is checked, and it is restarted" checks_and_restarts
step "an option is set until the reload" sets_until_the_reload
step "each alert gets a link" links_each_alert
step "the journal is read" typed journal
step "a mistake in the configuration is shown" shows_a_mistake
step "a repaired configuration starts" repaired_it_starts
step "what runbooks look at is there" is_looked_at
step "with its socket unit it wakes for a client" socket_outlives_the_daemon
step "the trainer in C++ builds and trains" trainer_builds_and_trains
step "a crash is told" tells_of_a_crash
step "the timer of tierd-smart is listed" timer_is_listed
step "a drain waits, and a restart follows" drain_waits_for_the_last_process
step "the restarted daemon serves" swaps
step "a device is drained while jobs go on" empties_a_device
step "an upgrade restarts a daemon without jobs" upgrades
step "the new version serves" swaps
step "a removal keeps what lies on SSD" removal_keeps_what_lies_on_ssd
step "a later installation finds it" installed_again_it_finds_them
step "a purge deletes it" purge_deletes_it
