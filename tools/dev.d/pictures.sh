# shellcheck shell=bash
# pictures: docs/images/*.png, by a real browser.

help_pictures() {
  cat <<'TEXT'
usage: tools/dev pictures

Builds release and the site, and makes docs/images/start-page.png (the site's start page) and docs/images/top.png
(`tierctl top` beside a daemon with three jobs that swap) by Chromium. Set-up does not install a browser, which is 300
MB: where there is none, this says so and does nothing.
TEXT
}

dev_pictures() {
  local browser
  (($# == 0)) || fail 2 "pictures: unknown option '$1'; see tools/dev pictures --help"
  if ! browser=$(command -v chromium); then
    say "pictures: skipped, needs chromium (apt-get install chromium)"
    return
  fi
  dev_build release tierd tierctl tier
  dev_docs
  with_build_tree run .venv/bin/python tools/docs/pictures.py "$browser" build/docs/html docs/images
}
