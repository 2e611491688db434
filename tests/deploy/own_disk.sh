#!/bin/bash
# "A disk of its own" of the operator guide, for test_own_disk.py: its blocks are /drill/file.* and /drill/device.*.
# /srv is a disk of its own, and /dev/nvme1n1 one with a file system of somebody else.
# shellcheck source=tests/deploy/drill_steps.sh
source /drill/drill_steps.sh

# typed NAME: the commands of that part; the editor that they open writes the page's drop-in. As at a terminal, all are
# typed though one fails, which `device show` does for content that is not tierd's.
typed() {
  SYSTEMD_EDITOR="cp /drill/$1.ini" PATH=/drill/programs:$PATH bash -ux "/drill/$1.sh" </dev/null
}

drop_in() {
  install -D -m 644 "/drill/$1.ini" /etc/systemd/system/tierd.service.d/override.conf
  systemctl daemon-reload
}

# starts NAME: with the configuration of that part.
starts() {
  cp "/drill/$1.toml" /etc/tierd/tierd.toml
  timeout 120 systemctl start tierd && systemctl is-active --quiet tierd
}

# refused NAME TEXT: it does not start so, and TEXT is in the log.
refused() {
  ! starts "$1" || return 1
  journalctl -u tierd --no-pager -o cat | grep -F -e "$2" || return 1
  systemctl stop tierd
}

device_list_has() {
  tierctl device list | grep -F "$1" && ! tierctl device list | grep -F /var/lib/tierd
}

show_says() {
  tierctl device show /dev/nvme1n1 2>&1 | grep -F -e "$1"
}

swaps() {
  as_another_user "$PYTHON" /drill/swap_script.py 8
}

formats_an_empty_one() {
  systemctl stop tierd && blkdiscard -f /dev/nvme1n1 && show_says "the label area is blank" || return 1
  starts device && device_list_has /dev/nvme1n1
}

purge_leaves_both() {
  local before
  systemctl stop tierd && before=$(head -c 1M /dev/nvme1n1 | sha256sum) && apt-get purge -y tierd || return 1
  [[ -f /srv/tierd/tier.ssd && $(head -c 1M /dev/nvme1n1 | sha256sum) == "$before" ]]
}

# This is root already, and has no sudo. systemctl edits for a terminal only.
install -D -m 755 /dev/stdin /drill/programs/sudo <<<$'#!/bin/sh\nexec "$@"'
install -D -m 755 /dev/stdin /drill/programs/systemctl <<'SYSTEMCTL'
#!/bin/sh
[ "$1" = edit ] || exec /usr/bin/systemctl "$@"
exec script --quiet --return --command "/usr/bin/systemctl $*" /dev/null
SYSTEMCTL
# No udev tells of devices in a container: a start does not wait for one.
install -D -m 644 /dev/stdin /etc/systemd/system/dev-nvme1n1.device.d/here.conf <<<$'[Unit]\nJobRunningTimeoutSec=1s'

step "the package installs" apt-get install -y /drill/tierd.deb
mkdir /srv/tierd && cp /drill/file.toml /etc/tierd/tierd.toml
step "without the drop-in the folder cannot be written" refused file /srv/tierd
rmdir /srv/tierd
step "the page makes the folder and edits the unit" typed file
step "the folder is the daemon's alone" test "$(stat -c %U:%a /srv/tierd)" = tierd:700
step "the service starts" starts file
step "its file and its index are there" test -s /srv/tierd/tier.ssd -a -s /srv/tierd/index.mdb
step "it uses no other" device_list_has /srv/tierd/tier.ssd
step "another user swaps" swaps
step "the service stops" systemctl stop tierd

step "without the drop-in it has no device" eval 'systemctl revert tierd && refused device /dev/nvme1n1'
step "a device with unknown content is refused" eval 'drop_in device && refused device "device format --force"'
step "its content is shown" show_says "it holds data that is not tierd's"
step "the page formats it and edits the unit" eval 'systemctl revert tierd && typed device'
step "the service starts on it" starts device
step "its content is tierd's" show_says uuid
step "it uses nothing else" device_list_has /dev/nvme1n1
step "another user swaps through it" swaps
step "an empty one is formatted at the start" formats_an_empty_one
step "a purge leaves folder and device" purge_leaves_both
