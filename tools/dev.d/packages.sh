# shellcheck shell=bash
# shellcheck disable=SC2034  # Read by setup.sh and preflight.sh.
# What set-up may install, by name. Nothing in BASE_PACKAGES or FULL_PACKAGES carries a service.

# To build, test and package: about 245 MB on a system with a compiler, 1.1 GB on a bare one.
BASE_PACKAGES=(
  ca-certificates git file pkg-config cmake ninja-build g++-12 gcc-12 ccache dpkg-dev
  python3 python3-venv
  libboost1.81-dev liburing-dev libgrpc++-dev protobuf-compiler protobuf-compiler-grpc
  libprotobuf-dev prometheus-cpp-dev libtomlplusplus-dev libcli11-dev liblmdb-dev libspdlog-dev libfmt-dev
  libisal-dev libnuma-dev libcap-ng-dev nlohmann-json3-dev libhwy-dev libjemalloc2
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev
)

# What only some tests and chores need: fuzzing and tidying, scripts, faulty devices, a bare Debian root, shells.
FULL_PACKAGES=(
  clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev llvm-19
  shellcheck nbdkit libnbd-bin fuse3 mmdebstrap fakeroot zsh fish
)

# Pulls in man-db, whose timer would start on a machine that runs systemd and does not have it yet.
LINTIAN_PACKAGES=(lintian)

# Carry services: unpacked into .cache/tools, never installed, so that no service starts on the machine.
UNPACKED_PACKAGES=(prometheus systemd-container libsystemd-shared)

# The benchmark's yardstick. It carries a service too; its libraries do not.
FIO_PACKAGES=(fio)
FIO_LIBRARIES=(libaio1 libgfapi0 libibverbs1 libnbd0 libpmemblk1 librbd1 librdmacm1)

# What the peer of `bench --peers` is built with. All it asks for would bring another torch: it comes without, and what
# it imports comes with its own requirements.
PEER_PACKAGES=(libaio-dev python3-dev)
PEER_PYTHON=(deepspeed==0.19.8)
PEER_IMPORTS=(hjson ninja msgpack py-cpuinfo psutil tqdm einops pydantic packaging)
