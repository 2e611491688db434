#!/bin/sh
# Installs the build tree into a scratch prefix, builds examples/mlp against it by find_package and by pkg-config, and
# trains with both under a daemon whose arena is smaller than the model.
#   try_mlp.sh BUILD_DIRECTORY SOURCE_DIRECTORY CMAKE CXX
#   try_mlp.sh --prefix PREFIX SOURCE_DIRECTORY CMAKE CXX       what is installed there already
set -eu
scratch=$(mktemp -d /tmp/tier-mlp-XXXXXX)
daemon=
finish() {
  [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2> /dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT

if [ "$1" = --prefix ]; then
  prefix=$2
  shift
else
  prefix=$scratch/prefix
  "$3" --install "$1" --prefix "$prefix" > "$scratch/install.log" 2>&1 || { cat "$scratch/install.log"; exit 1; }
fi
source=$2 cmake=$3 cxx=$4
command -v pkg-config > /dev/null || { echo "needs pkg-config"; exit 77; }
libdir=$(dirname "$(find "$prefix" -name 'libtier.so.0' | head -1)")
LD_LIBRARY_PATH=$libdir
export LD_LIBRARY_PATH

echo "== by find_package"
cp -r "$source/examples/mlp" "$scratch/one"
"$cmake" -S "$scratch/one" -B "$scratch/one/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
  > "$scratch/one.log"
"$cmake" --build "$scratch/one/build" >> "$scratch/one.log"

echo "== by pkg-config"
cp -r "$source/examples/mlp" "$scratch/two"
PKG_CONFIG_PATH=$libdir/pkgconfig make -C "$scratch/two" CXX="$cxx" > "$scratch/two.log"

mkdir "$scratch/run"
mkfifo "$scratch/ready"
"$prefix/bin/tierd" --private --set daemon.socket_directory="$scratch/run" --set daemon.data_directory="$scratch/data" \
  --set arena.maximum=64MiB --set ssd.file_size=1GiB --set ssd.any_file_system=true > "$scratch/ready" 2>&1 &
daemon=$!
# Its first lines, up to the one that says where it serves; then the rest into a log, so that the pipe never fills.
exec 3< "$scratch/ready"
while read -r line <&3; do
  case $line in *"serving at"*) break ;; *) echo "tierd: $line" ;; esac
done
cat <&3 > "$scratch/tierd.log" &

TIERD_SOCKET=$scratch/run/tierd.sock
export TIERD_SOCKET
for program in "$scratch/one/build/mlp" "$scratch/two/mlp"; do
  "$program" --width 768 --layers 6 --steps 3 --checks 6
done
