# shellcheck shell=bash
# setup: what building needs, and only what is missing. Debian packages as root; Python packages into .venv; packages
# that carry services are unpacked into .cache/tools. No sysctl, limit or service of the machine is touched.

readonly TORCH_REQUIREMENT="torch==2.13.0"

help_setup() {
  cat <<'TEXT'
usage: tools/dev setup [--full]

Installs the Debian packages that building and testing need and that are missing (as root; otherwise prints the one
line that does it and exits 2), and the Python packages into .venv. Repeating it costs a second.

  --full   also what only some tests and chores need: clang 19, shellcheck, lintian, nbdkit, mmdebstrap, and the tools
           that make and check the wheel (.cache/packaging). Packages that carry services (prometheus,
           systemd-container, fio) are unpacked into .cache/tools, not installed: nothing starts.
TEXT
}

dev_setup() {
  local full=0
  for argument in "$@"; do
    case $argument in
      --full) full=1 ;;
      *) fail 2 "setup: unknown option '$argument'; see tools/dev setup --help" ;;
    esac
  done
  local wanted=("${BASE_PACKAGES[@]}")
  if ((full)); then
    wanted+=("${FULL_PACKAGES[@]}")
    if lintian_starts_nothing; then
      wanted+=("${LINTIAN_PACKAGES[@]}")
    else
      say "lintian left out: it brings man-db, whose timer would start here; its test will be skipped"
    fi
  fi
  install_debian_packages "${wanted[@]}"
  if ((full)); then
    unpack_packages "${UNPACKED_PACKAGES[@]}"
    setup_fio
    setup_packaging
  fi
  install_python_packages
}

# What tools/dev bench measures against.
setup_fio() {
  if ! have fio; then
    install_debian_packages "${FIO_LIBRARIES[@]}"
    unpack_packages "${FIO_PACKAGES[@]}"
  fi
}

# What makes and checks the wheel, in an environment of its own.
setup_packaging() {
  local tools="$ROOT/.cache/packaging" list="$ROOT/tools/dev.d/packaging.txt"
  if cmp -s "$list" "$tools/installed.txt"; then
    return
  fi
  # Each step by its own status: a caller that goes on without the tools has switched -e off.
  [[ -x $tools/bin/python ]] || run /usr/bin/python3 -m venv "$tools" || return
  run "$tools/bin/python" -m pip install -q --disable-pip-version-check -r "$list" || return
  cp "$list" "$tools/installed.txt"
}

# The peer of `tools/dev bench --peers`, beside .venv's torch; its operator is built when it is first loaded.
setup_peers() {
  local peers="$ROOT/.cache/peers" all="${PEER_IMPORTS[*]} ${PEER_PYTHON[*]}"
  install_debian_packages "${PEER_PACKAGES[@]}"
  if [[ $(cat "$peers/installed.txt" 2>/dev/null) != "$all" ]]; then
    run "$ROOT/.venv/bin/pip" install -q --upgrade --target "$peers" "${PEER_IMPORTS[@]}"
    run "$ROOT/.venv/bin/pip" install -q --upgrade --no-deps --target "$peers" "${PEER_PYTHON[@]}"
    echo "$all" >"$peers/installed.txt"
  fi
}

lintian_starts_nothing() {
  [[ -n $(present_packages man-db) ]] || [[ ! -d /run/systemd/system ]]
}

# Those of the named packages that are installed, one a line.
present_packages() {
  # Unknown names are no error here: they are missing.
  { dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null || true; } | sed -n 's/^ii *//p'
}

missing_packages() {
  comm -13 <(present_packages "$@" | sort -u) <(printf '%s\n' "$@" | sort -u)
}

install_debian_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    say "Debian packages: all ${#} present"
    return
  fi
  have apt-get || fail 2 "this set-up knows Debian's apt only; install the likes of: ${missing[*]}"
  if ((EUID != 0)); then
    echo "tools/dev: ${#missing[@]} Debian packages are missing; run this line, then repeat:" >&2
    echo "sudo apt-get install -y --no-install-recommends ${missing[*]}"
    exit 2
  fi
  say "Debian packages: installing ${#missing[@]} of $#"
  export DEBIAN_FRONTEND=noninteractive
  local quiet=()
  [[ -t 1 ]] || quiet=(-qq -o Dpkg::Use-Pty=0)
  run apt-get update "${quiet[@]}" || say "apt-get update reported errors; going on with the lists that are there"
  run apt-get install -y "${quiet[@]}" --no-install-recommends "${missing[@]}"
}

unpack_packages() {
  local debs="$ROOT/.cache/debs" tools="$ROOT/.cache/tools" package deb
  mkdir -p "$debs" "$tools"
  for package in "$@"; do
    if [[ -e $debs/$package.unpacked ]]; then
      continue
    fi
    if ! (cd "$debs" && run apt-get download -q "$package" 2> >(grep -v 'unsandboxed' >&2)); then
      say "$package could not be fetched; the tests that need it will be skipped"
      continue
    fi
    for deb in "$debs/${package}"_*.deb; do
      run dpkg-deb -x "$deb" "$tools"
    done
    rm -f "$debs/${package}"_*.deb
    touch "$debs/$package.unpacked"
  done
}

python_packages_wanted() {
  cat "$ROOT/tools/dev.d/requirements.txt"
  echo "$TORCH_REQUIREMENT"
}

python_packages_present() {
  [[ -x $ROOT/.venv/bin/python && $(cat "$ROOT/.venv/tierd-installed.txt" 2>/dev/null) == "$(python_packages_wanted)" ]]
}

install_python_packages() {
  local venv="$ROOT/.venv"
  if python_packages_present; then
    say "Python packages: .venv is up to date"
    return
  fi
  say "Python packages: into .venv"
  [[ -x $venv/bin/python ]] || run /usr/bin/python3 -m venv "$venv"
  local pip=("$venv/bin/python" -m pip install --disable-pip-version-check)
  [[ -t 1 ]] || pip+=(--quiet)  # A log needs no progress bar; a person waiting for torch does.
  run "${pip[@]}" "$TORCH_REQUIREMENT"
  run "${pip[@]}" -r tools/dev.d/requirements.txt
  python_packages_wanted >"$venv/tierd-installed.txt"
}

# For verbs that need set-up: does nothing, and says nothing, when all is there.
ensure_setup() {
  local missing
  mapfile -t missing < <(missing_packages "${BASE_PACKAGES[@]}")
  if ((${#missing[@]})) || ! python_packages_present; then
    dev_setup
  fi
}
