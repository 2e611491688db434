# shellcheck shell=bash
# docs: the documentation's site, from docs/, the public headers of libtier and the docstrings of Python.

help_docs() {
  cat <<'TEXT'
usage: tools/dev docs [--external]

Builds the site into build/docs/html; its start page is index.html. A warning is an error: a reference that leads
nowhere, a page in no list, a mistake in a docstring. Then it follows every link within the site, and finds pages that
no link leads to.

  --external   instead, asks the network whether each address outside of the site answers. Continuous integration
               has no network and leaves this out; run it before a release.
TEXT
}

dev_docs() {
  local external=0
  for argument in "$@"; do
    case $argument in
      --external) external=1 ;;
      *) fail 2 "docs: unknown option '$argument'; see tools/dev docs --help" ;;
    esac
  done
  ensure_setup
  if ((external)); then
    run .venv/bin/python -m sphinx -b linkcheck -q -c tools/docs -d build/docs/external docs build/docs/external
    return
  fi
  # From nothing: a page that was deleted must not stay, and every warning is to be seen again.
  rm -rf build/docs/html build/docs/doctrees
  run .venv/bin/python -m sphinx -b html -W --keep-going -q -c tools/docs -d build/docs/doctrees docs build/docs/html
  run .venv/bin/python tools/docs/site_links.py build/docs/html
}
