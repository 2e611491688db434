# shellcheck shell=bash
# faults: what every operation answers while something fails, and what is left afterwards.

help_faults() {
  cat <<'TEXT'
usage: tools/dev faults [--only FAULT]... [--operation NAME]... [--write]

Builds release and asks a real daemon for every operation during every fault: devices that answer errors, hang, die or
are cut short, a flipped bit, a damaged or full index, no descriptors. Compares each answer, its time and what is left
afterwards with the table in tools/faults/fault_table.py. Takes about five minutes.

  --only FAULT      only this fault (may be repeated)
  --operation NAME  only this operation (may be repeated)
  --write           write docs/faults.md from what was measured

Devices that fail need root, nbdkit, nbdfuse and loop devices; where one is missing, those faults are skipped by name.
TEXT
}

dev_faults() {
  dev_build release tierd tierctl tier tier_python_descriptors
  with_build_tree run .venv/bin/python tools/faults/run_faults.py "$@"
}
