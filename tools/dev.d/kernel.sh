# shellcheck shell=bash
# kernel: the tests of passed descriptors and of I/O on Debian's 6.1 kernel, which queues descriptors that newer kernels
# refuse, and lets go of a window's pages on a thread of its own.

help_kernel() {
  cat <<'TEXT'
usage: tools/dev kernel

Boots Debian's stable kernel in qemu, without KVM and without installing anything, and runs the tests of hostile
descriptors on all three sockets there (FUSE file, lingering TCP socket, full pipe, io_uring), and those of io_uring and
of the threads of devices. Needs the Debian archive, 600 MB of disk below build/kernel and three minutes. The test of
SO_PASSRIGHTS is skipped there by name.
TEXT
}

dev_kernel() {
  local work=build/kernel
  local tests=(build/release/tests/unit/{session/session_socket_test,control/control_test,storage/storage_io_test})
  dev_build release session_socket_test control_test storage_io_test
  [[ -d $work/unpacked/boot ]] || kernel_fetch "$work"
  kernel_initramfs "$work" "${tests[@]}"
  run env LD_LIBRARY_PATH="$work/unpacked/usr/lib/x86_64-linux-gnu" timeout 300 \
    "$work/unpacked/usr/bin/qemu-system-x86_64" \
    -L "$work/unpacked/usr/share/qemu" -L "$work/unpacked/usr/share/seabios" \
    -accel tcg -machine q35 -cpu max -smp 1 -m 2G -nographic -no-reboot -nic none \
    -kernel "$(echo "$work"/unpacked/boot/vmlinuz-*)" -initrd "$work/initramfs.gz" \
    -append 'console=ttyS0 quiet panic=-1 no_timer_check noapic' </dev/null | tee "$work/log"
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

kernel_initramfs() {
  local work=$1 tree=$1/tree test library
  shift
  rm -rf "$tree"
  mkdir -p "$tree"/{bin,tests,dev,proc,sys,tmp}
  cp "$work/unpacked/bin/busybox" "$tree/bin/"
  for test in "$@"; do
    run strip -o "$tree/tests/${test##*/}" "$test"
    for library in $(ldd "$test" | grep -o '/[^ ]*\.so[^ ]*'); do
      mkdir -p "$tree$(dirname "$library")"
      cp -L "$library" "$tree$library"
    done
  done
  cp "$work"/unpacked/lib/modules/*/kernel/fs/fuse/fuse.ko "$tree/"
  cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t tmpfs none /tmp
export TMPDIR=/tmp
/bin/busybox ip link set lo up
/bin/busybox insmod /fuse.ko
/bin/busybox uname -r
status=0
descriptors='*PassedDescriptors*:RefusedDescriptors*:*ControlDescriptors*'
io='*DeviceIo*:UringIo*:IoThreads*'
for test in /tests/*; do
  $test --gtest_color=no --gtest_filter="$descriptors:$io" || status=1
done
echo "status=$status"
/bin/busybox poweroff -f
INIT
  chmod +x "$tree/init"
  (cd "$tree" && find . | ../unpacked/bin/cpio -o -H newc | gzip -1) >"$work/initramfs.gz"
}
