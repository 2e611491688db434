# shellcheck shell=bash
# kernel: the tests of passed descriptors, of I/O and of failing devices on Debian's 6.1 kernel, which queues
# descriptors that newer kernels refuse, lets go of a window's pages on a thread of its own, and has device mapper.

help_kernel() {
  cat <<'TEXT'
usage: tools/dev kernel [TEST...]

Boots Debian's stable kernel in qemu, without KVM and without installing anything, and runs the tests of hostile
descriptors on all three sockets there (FUSE file, lingering TCP socket, full pipe, io_uring), and those of io_uring and
of the threads of devices, a daemon on devices that fail and hang by device mapper, and one in a control group of
version 2 whose memory.high is lowered, or whose tasks wait for memory. Needs the Debian archive, 600 MB of disk below
build/kernel and six minutes. The test of SO_PASSRIGHTS is skipped there by name.

With TESTs, only these binaries: session_socket_test, control_test, storage_io_test, daemon_devices_test,
daemon_pressure_test.
TEXT
}

dev_kernel() {
  local work=build/kernel name tests=() names=("$@")
  local -A paths=([session_socket_test]=unit/session [control_test]=unit/control [storage_io_test]=unit/storage
    [daemon_devices_test]=crash/daemon
    [daemon_pressure_test]=crash/daemon)
  (($#)) || names=("${!paths[@]}")
  for name in "${names[@]}"; do
    [[ -n ${paths[$name]:-} ]] || fail 2 "kernel: unknown test '$name'; one of: ${!paths[*]}"
    tests+=("build/release/tests/${paths[$name]}/$name")
  done
  dev_build release tierd "${names[@]}"
  [[ -d $work/unpacked/boot ]] || kernel_fetch "$work"
  kernel_initramfs "$work" "${tests[@]}"
  run env LD_LIBRARY_PATH="$work/unpacked/usr/lib/x86_64-linux-gnu" timeout 500 \
    "$work/unpacked/usr/bin/qemu-system-x86_64" \
    -L "$work/unpacked/usr/share/qemu" -L "$work/unpacked/usr/share/seabios" \
    -accel tcg -machine q35 -cpu max -smp 1 -m 3G -nographic -no-reboot -nic none \
    -kernel "$(echo "$work"/unpacked/boot/vmlinuz-*)" -initrd "$work/initramfs.gz" \
    -append 'console=ttyS0 quiet psi=1 panic=-1 no_timer_check noapic' </dev/null | tee "$work/log"
  grep -q '^status=0' "$work/log" || fail 1 "kernel: the tests failed there; see $work/log"
}

# Downloads and unpacks: nothing is installed.
kernel_fetch() {
  local work=$1 archive
  mkdir -p "$work/packages/partial" "$work/unpacked"
  run apt-get install -y --no-install-recommends --download-only -o Debug::NoLocking=1 \
    -o "Dir::Cache::archives=$PWD/$work/packages" linux-image-amd64 qemu-system-x86 cpio busybox-static
  for archive in "$work"/packages/*.deb; do
    run dpkg-deb -x "$archive" "$work/unpacked"
  done
}

# A program and its libraries.
kernel_program() {
  local program=$1 tree=$2 place=$3 library
  run strip -o "$tree$place" "$program"
  for library in $(ldd "$program" | grep -o '/[^ ]*\.so[^ ]*'); do
    mkdir -p "$tree$(dirname "$library")"
    cp -L "$library" "$tree$library"
  done
}

kernel_initramfs() {
  local work=$1 tree=$1/tree test
  local drivers=("$work"/unpacked/lib/modules/*/kernel/{fs/fuse/fuse,drivers/block/brd,drivers/md/dm-mod}.ko)
  shift
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,tests,dev,proc,sys,tmp}
  cp "$work/unpacked/bin/busybox" "$tree/bin/"
  for test in "$@"; do
    kernel_program "$test" "$tree" "/tests/${test##*/}"
  done
  # Where the tests look for it, and beside their scratch directories.
  mkdir -p "$tree$PWD/build/release/daemon" "$tree$PWD/build/release/tests/crash/daemon"
  kernel_program build/release/daemon/tierd "$tree" "$PWD/build/release/daemon/tierd"
  cp "${drivers[@]}" "$work"/unpacked/lib/modules/*/kernel/drivers/md/dm-{flakey,delay}.ko "$tree/"
  echo "$PWD/build/release/tests/crash/daemon" >"$tree/scratch"
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t cgroup2 none /sys/fs/cgroup
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mkdir -p /tmp /temporary  # Not /tmp itself: a checkout may lie there, and its paths are used here.
/bin/busybox mount -t tmpfs none /temporary
export TMPDIR=/temporary
/bin/busybox ip link set lo up
/bin/busybox mount -t tmpfs none "$(/bin/busybox cat /scratch)"
/bin/busybox insmod /fuse.ko
/bin/busybox insmod /brd.ko rd_nr=2 rd_size=131072
for driver in dm-mod dm-flakey dm-delay; do
  /bin/busybox insmod "/$driver.ko"
done
export TIER_FAULT_DEVICES=/dev/ram0:/dev/ram1
/bin/busybox uname -r
status=0
descriptors='*PassedDescriptors*:RefusedDescriptors*:*ControlDescriptors*'
io='*DeviceIo*:UringIo*:IoThreads*:MappedDevices*:PressedDaemon*'
for test in /tests/*; do
  $test --gtest_color=no --gtest_filter="$descriptors:$io" || status=1
done
echo "status=$status"
/bin/busybox poweroff -f
INIT
  chmod +x "$tree/init"
  (cd "$tree" && find . | ../unpacked/bin/cpio -o -H newc | gzip -1) >"$work/initramfs.gz"
}
