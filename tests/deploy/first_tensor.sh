#!/bin/bash
# From the package to the first tensor, for test_first_tensor.py: each line of /drill/commands, as the page has it. A
# line that begins with sudo is typed by an administrator where the package lies, any other by another user at home.
# /drill/times has the seconds that each took, and the line; /drill/answer what the last one printed.
# shellcheck source=tests/deploy/drill_steps.sh
source /drill/drill_steps.sh

# typed NUMBER: so it runs, and its time is noted.
typed() {
  local line before status=0
  line=$(sed -n "$1p" /drill/commands)
  before=$(date +%s%3N)
  case $line in
    sudo\ *) (cd /drill/checkout && PATH=/drill/programs:$PATH bash -c "$line") </dev/null || status=$? ;;
    *) (cd /drill/home && as_another_user bash -c "$line") </dev/null >/drill/answer || status=$? ;;
  esac
  echo "$(($(date +%s%3N) - before)) $line" >>/drill/times
  return "$status"
}

# This is root already, and has no sudo.
install -D -m 755 /dev/stdin /drill/programs/sudo <<<$'#!/bin/sh\nexec "$@"'
chown -R 54321:54321 /drill/home

lines=$(wc -l </drill/commands)
for ((line = 1; line <= lines; ++line)); do
  step "line $line" typed "$line"
done
