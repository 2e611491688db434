# shellcheck shell=bash
# What the drills share: sourced by each script that runs as a service inside the booted container (container.py).
# It writes one line a step to /drill/log: "ok NAME" or "FAILED NAME"; /drill/journal has what the service logged in
# each. Ends by powering the container off.
set -u
trap 'systemctl poweroff --force' EXIT
exec >/drill/output 2>&1
set -x

step() {
  local name=$1
  shift
  if "$@"; then
    echo "ok $name (at ${SECONDS} s)" >>/drill/log
  else
    echo "FAILED $name (exit status $?)" >>/drill/log
    systemctl status tierd --no-pager --lines=50
    journalctl -u tierd --no-pager --lines=100
  fi
  {
    echo "== $name"
    journalctl -u tierd --no-pager -o short-iso --cursor-file=/drill/cursor
  } >>/drill/journal
}

main_pid() {
  systemctl show tierd --property=MainPID --value
}

# as_another_user PROGRAM ARGUMENTS: one of uid 54321, for which Python finds the package tierd.
as_another_user() {
  setpriv --reuid=54321 --regid=54321 --clear-groups --no-new-privs \
    env -i PATH=/usr/bin:/bin HOME=/tmp PYTHONPATH=/drill TIERD_LIBRARY="$(echo /usr/lib*/libtier.so.0)" "$@"
}

# upgrade VERSION: installs it and shows what dpkg said; fails unless it is installed then.
upgrade() {
  dpkg -i "/drill/tierd-$1.deb" >/drill/dpkg-output 2>&1 || return 1
  cat /drill/dpkg-output
  [[ $(dpkg-query --show --showformat='${Version}' tierd) == "$1" ]]
}
