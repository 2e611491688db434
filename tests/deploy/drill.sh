#!/bin/bash
# The life of the package, for test_systemd.py: from its installation to its purge.
# shellcheck source=tests/deploy/drill_steps.sh
source /drill/drill_steps.sh

install_package() {
  # What README.md says; there is no network, and a local package needs none.
  apt-get install -y /drill/tierd.deb
}

nothing_started() {
  ! systemctl is-active --quiet tierd && ! systemctl is-enabled --quiet tierd
}

unit_is_read_without_a_word() {
  [[ -z $(systemd-analyze verify --man=no tierd.service tierd.socket 2>&1) ]]
}

# swap_as_another_user TENSORS: of 64 MiB each, through an arena of 256 MiB.
swap_as_another_user() {
  as_another_user "$PYTHON" /drill/swap_script.py "$1"
}

restarts_after_kill() {
  local before
  before=$(main_pid)
  [[ $before -gt 0 ]] || return 1
  kill -9 "$before" || return 1
  for _ in $(seq 100); do
    if [[ $(main_pid) != 0 && $(main_pid) != "$before" ]] && systemctl is-active --quiet tierd; then
      return 0
    fi
    sleep 0.1
  done
  return 1
}

status_answers() {
  # Exit status 6: degraded, as on a machine without a right or huge pages.
  local status=0
  tierctl status || status=$?
  [[ $status == 0 || $status == 6 ]]
}

# reloads CONFIGURATION LINE: the daemon takes it over, says LINE and goes on.
reloads() {
  local before
  before=$(main_pid)
  cat /drill/tierd.toml - <<<"$1" >/etc/tierd/tierd.toml
  systemctl reload tierd || return 1
  for _ in $(seq 100); do
    if journalctl -u tierd --no-pager | grep -F "$2"; then
      [[ $(main_pid) == "$before" ]]
      return
    fi
    sleep 0.1
  done
  return 1
}

refuses_to_reload_a_mistake() {
  local before
  before=$(main_pid)
  echo "[log" >/etc/tierd/tierd.toml
  ! systemctl reload tierd && systemctl is-active --quiet tierd && [[ $(main_pid) == "$before" ]] || return 1
  # The daemon tells of it too: what it was started with would not start it again.
  for _ in $(seq 100); do
    curl --silent --fail http://127.0.0.1:9464/metrics | grep -x "tierd_config_reload_failed 1" &&
      tierctl status | grep -F "the last reload was refused" && return 0
    sleep 0.1
  done
  return 1
}

# The unit is failed, not restarted for as long as the mistake stays; the journal has the reason as an error.
broken_configuration_fails() {
  printf '[arena]\nmaximun = "1GiB"\n' >/etc/tierd/tierd.toml
  ! systemctl start tierd || return 1
  for _ in $(seq 50); do
    systemctl is-failed --quiet tierd && break
    sleep 0.1
  done
  systemctl --failed --plain --no-legend | grep '^tierd.service' &&
    [[ $(systemctl show tierd --property=ExecMainStatus --value) == 78 ]] &&
    [[ $(systemctl show tierd --property=NRestarts --value) == 0 ]] &&
    journalctl -u tierd -p err --no-pager -o cat | grep -F "/etc/tierd/tierd.toml:2:" &&
    [[ $(journalctl -u tierd --no-pager -o cat | grep -c "maximun") == 1 ]]
}

# A drop-in with an option that there is not: the unit is failed, and not tried again for as long as it stays.
wrong_option_fails() {
  local drop_in=/etc/systemd/system/tierd.service.d failed=1
  mkdir -p "$drop_in"
  printf '[Service]\nExecStart=\nExecStart=/usr/bin/tierd --confg /etc/tierd/tierd.toml\n' >"$drop_in/option.conf"
  systemctl daemon-reload
  ! systemctl start tierd || return 1
  # Several times the pause between two tries.
  for _ in $(seq 20); do
    sleep 0.1
    systemctl is-failed --quiet tierd || return 1
  done
  [[ $(systemctl show tierd --property=ExecMainStatus --value) == 2 ]] &&
    [[ $(systemctl show tierd --property=NRestarts --value) == 0 ]] && failed=0
  rm -r "$drop_in"
  systemctl daemon-reload
  return $failed
}

repaired_configuration_starts() {
  cp /drill/tierd.toml /etc/tierd/tierd.toml
  systemctl start tierd && systemctl is-active --quiet tierd &&
    ! systemctl --failed --plain --no-legend | grep '^tierd.service' &&
    journalctl -u tierd --no-pager -o cat | grep -F "configuration /etc/tierd/tierd.toml" &&
    systemctl stop tierd
}

# examples/mlp, by find_package and by pkg-config, against what the package installed.
trainer_builds_and_trains() {
  sh "$SOURCE/tests/e2e/cpp/try_mlp.sh" --prefix /usr "$SOURCE" /usr/bin/cmake /usr/bin/g++-12
}

attached_client() {
  as_another_user "$PYTHON" /drill/attached_script.py /drill/attached /drill/upgraded
}

# A trainer that holds a tensor lives through the upgrade and gets its bytes back from the old daemon.
upgrade_under_a_client() {
  local before client
  before=$(main_pid)
  mkfifo -m 666 /drill/attached /drill/upgraded
  attached_client &
  client=$!
  read -r -t 60 _ <>/drill/attached || return 1
  upgrade "$1" || return 1
  timeout 60 sh -c 'echo go >/drill/upgraded' || return 1
  wait "$client" || return 1
  [[ $(main_pid) == "$before" ]] &&
    grep -F "the old version keeps running: a restart would end 1 open job(s) with 1 session(s)" /drill/dpkg-output &&
    grep -F "systemctl restart tierd" /drill/dpkg-output
}

upgrade_of_a_daemon_that_cannot_be_asked() {
  local before
  before=$(main_pid)
  mv /run/tierd/admin.sock /run/tierd/aside.sock || return 1
  upgrade "$1" || return 1
  mv /run/tierd/aside.sock /run/tierd/admin.sock
  [[ $(main_pid) == "$before" ]] && grep -F "keeps running: it did not say" /drill/dpkg-output
}

upgrade_without_jobs() {
  local before
  before=$(main_pid)
  # The job of the last client ends a moment after that client.
  for _ in $(seq 100); do
    [[ $(tierctl --json status | grep -c '"job_count": 0,') == 1 ]] && break
    sleep 0.1
  done
  upgrade "$1" || return 1
  [[ $(main_pid) != "$before" ]] && systemctl is-active --quiet tierd && ! grep -F "keeps running" /drill/dpkg-output
}

# In its new version, and until it is undrained.
upgrade_of_a_drained_daemon() {
  local before
  before=$(main_pid)
  tierctl drain && upgrade "$1" || return 1
  [[ $(main_pid) != "$before" ]] && grep -F "is drained as the old one was" /drill/dpkg-output &&
    tierctl --json status | grep -F '"draining": true' && ! swap_as_another_user 1 && tierctl undrain
}

# wait_status ARGUMENTS of grep: until it finds the service's own line so; systemd shows it a moment after its cause.
wait_status() {
  for _ in $(seq 100); do
    systemctl show tierd --property=StatusText --value | grep "$@" && return 0
    sleep 0.1
  done
  return 1
}

# A trainer is refused meanwhile.
drain_is_seen_and_reversed() {
  tierctl drain && wait_status 'being drained' && ! swap_as_another_user 1 || return 1
  tierctl undrain && wait_status -v 'being drained' && swap_as_another_user 1
}

# A named job of another user has a tensor with pieces on each of two devices.
persists_on_two_devices() {
  sed 's|^\[ssd\]|&\ndevices = ["/var/lib/tierd/one.ssd", "/var/lib/tierd/two.ssd"]|' /drill/tierd.toml \
    >/etc/tierd/tierd.toml
  systemctl restart tierd || return 1
  as_another_user "$PYTHON" - <<'PYTHON'
import tierd
with tierd.connect(job="kept", named=True, autostart=False) as client:
    client.put("layer", bytes(64 << 20))
    client.persist()
PYTHON
}

starts_without_a_lost_device() {
  systemctl stop tierd && mv /var/lib/tierd/two.ssd /var/lib/tierd/aside && systemctl start tierd || return 1
  systemctl is-active --quiet tierd && tierctl job list --lost | grep kept &&
    journalctl -u tierd -p warning --no-pager -o cat | grep -F "/var/lib/tierd/two.ssd" && swap_as_another_user 2
}

# Its UUID stands below the table of devices.
gives_a_lost_device_up() {
  local uuid
  uuid=$(tierctl --json device list | sed -n '/"missing"/,$s/.*"uuid": "\([0-9a-f-]*\)".*/\1/p')
  tierctl device purge --force "$uuid" && tierctl job list --lost | grep -F "no job is lost" || return 1
  rm /var/lib/tierd/aside && cp /drill/tierd.toml /etc/tierd/tierd.toml && systemctl restart tierd
}

# Connections start the service again, but not without end: both units are failed in the end, and a repaired
# configuration starts.
broken_configuration_fails_behind_the_socket() {
  printf '[arena]\nmaximun = "1GiB"\n' >/etc/tierd/tierd.toml
  systemctl start tierd.socket || return 1
  ! swap_as_another_user 1 || return 1
  for _ in $(seq 200); do
    systemctl is-failed --quiet tierd.socket && systemctl is-failed --quiet tierd && break
    sleep 0.1
  done
  systemctl --failed --plain --no-legend | grep '^tierd.socket' &&
    systemctl --failed --plain --no-legend | grep '^tierd.service' || return 1
  local tries
  tries=$(journalctl -u tierd --no-pager -o cat | grep -c "maximun")
  sleep 1
  [[ $(journalctl -u tierd --no-pager -o cat | grep -c "maximun") == "$tries" ]] || return 1
  cp /drill/tierd.toml /etc/tierd/tierd.toml
  # Starts of the last ten seconds count yet.
  for _ in $(seq 20); do
    if systemctl start tierd.socket && swap_as_another_user 1; then
      systemctl stop tierd.socket tierd.service
      return
    fi
    sleep 1
  done
  return 1
}

purge_beside_a_mounted_disk() {
  local disk=/var/lib/tierd/disk
  mkdir "$disk" && mount -t tmpfs tmpfs "$disk" && touch "$disk/kept" || return 1
  dpkg --purge tierd >/drill/dpkg-output 2>&1 || return 1
  [[ -e $disk/kept ]] && grep -F "$disk" /drill/dpkg-output && umount "$disk" && rmdir "$disk"
}

leaves_nothing() {
  local left
  left=$(find /etc /usr /var /run /srv -xdev \( -iname '*tierd*' -o -name 'libtier*' -o -name tierctl \) \
    -not -path '/run/systemd/*' -not -path '/run/user/*' -not -path '*/dist-packages/*' -not -path '/var/cache/*' \
    -not -path '/var/lib/apt/*' -not -path '/var/lib/dpkg/*' -not -path '/var/lib/tierd' -not -path '/var/log/*')
  echo "left: $left"
  [[ -z $left && -z $(ls -A /var/lib/tierd 2>/dev/null) ]] && ! getent passwd tierd && ! getent group tierd
}

step "the package installs" install_package
step "installing makes the user" id tierd
step "installing starts nothing" nothing_started
cp /drill/tierd.toml /etc/tierd/tierd.toml
step "a C++ trainer builds against it and trains" trainer_builds_and_trains
step "systemd reads the units without a word" unit_is_read_without_a_word
step "a broken configuration leaves the unit failed" broken_configuration_fails
step "a wrong option leaves the unit failed" wrong_option_fails
step "a repaired one starts" repaired_configuration_starts
step "the service starts" systemctl enable --now tierd
step "it runs as its own user" test "$(stat -c %U "/proc/$(main_pid)")" = tierd
step "tierctl status answers" status_answers
step "a reload takes over the log level" reloads $'[log]\nlevel = "debug"' 'log.level is "debug"'
step "a reload of a broken configuration fails" refuses_to_reload_a_mistake
cp /drill/tierd.toml /etc/tierd/tierd.toml
step "another user swaps 512 MiB through SSD" swap_as_another_user 8
step "a killed daemon is started again" restarts_after_kill
step "the restarted daemon serves" swap_as_another_user 2
step "an upgrade leaves a daemon with an attached client running" upgrade_under_a_client 99.1
step "an upgrade leaves a daemon that does not answer running" upgrade_of_a_daemon_that_cannot_be_asked 99.2
step "an upgrade restarts a daemon without jobs" upgrade_without_jobs 99.3
step "an upgrade leaves a drained daemon drained" upgrade_of_a_drained_daemon 99.4
step "a drain is seen and reversed" drain_is_seen_and_reversed
step "a named job persists on two devices" persists_on_two_devices
step "the service starts without a lost device" starts_without_a_lost_device
step "the lost device is given up" gives_a_lost_device_up
step "the service stops" systemctl stop tierd
step "a stopped service is not failed" test "$(systemctl show tierd --property=Result --value)" = success
step "behind the socket unit a broken configuration ends failed" broken_configuration_fails_behind_the_socket
step "with the socket unit it starts on the first connection" systemctl start tierd.socket
step "a client wakes it" swap_as_another_user 2
step "socket and service stop" systemctl stop tierd.socket tierd.service
step "purge leaves a disk that is mounted below the data" purge_beside_a_mounted_disk
step "purge leaves nothing" leaves_nothing
