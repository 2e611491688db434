# shellcheck shell=bash
# package: the wheel and the Debian package, into dist/.

help_package() {
  cat <<'TEXT'
usage: tools/dev package [wheel|deb]

Builds release and writes dist/tierd-VERSION-py3-none-manylinux_2_36_x86_64.whl and dist/tierd_VERSION_amd64.deb
(or only the one named). Both carry the notices of all that is linked into them; neither is made when that differs from
deploy/licences/components.toml.
TEXT
}

dev_package() {
  local what=${1:-all}
  case $what in
    all | wheel | deb) ;;
    *) fail 2 "package: unknown kind '$what'; wheel or deb" ;;
  esac
  dev_build release tierd tierctl tierd-smart tier tier-control tier_manual tier_python_descriptors
  mkdir -p dist
  if [[ $what != deb ]]; then
    setup_packaging
    run .cache/packaging/bin/python bindings/python/build_wheel.py --build build/release --out dist
  fi
  if [[ $what != wheel ]]; then
    package_deb
  fi
  ls -l dist >&2
}

# CPack strips and installs into a staging root of its own; the umask decides the modes of its folders.
package_deb() {
  rm -f dist/*.deb
  (umask 022 && run cpack --config build/release/CPackConfig.cmake -G DEB -B build/release/package)
  run cp build/release/package/*.deb dist/
}
