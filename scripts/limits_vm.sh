#!/bin/sh
# Boot a small virtual machine with control groups of version 2 and run the attackers of limits in
# it. It downloads qemu and a kernel as Debian packages into .vm, installs nothing, and needs no
# root. usage: scripts/limits_vm.sh [PYTHON], by default /usr/bin/python3. LIMITS_VM_PLACES chooses
# some of the places of scripts/limits_in_vm.py, and LIMITS_VM_SECONDS how long it may take: 900 by
# default. Its 67 checks took 133 seconds on two cores that were free, and 381 at a load of 9.
set -eu
cd "$(dirname "$0")/.."
python=${1:-/usr/bin/python3}
vm=$PWD/.vm
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "skipped: this needs the packages of Debian" >&2
    exit 0
fi
mkdir -p "$vm/archives/partial" "$vm/unpacked"
if [ ! -x "$vm/unpacked/usr/bin/qemu-system-x86_64" ]; then
    apt-get -o Dir::Cache::archives="$vm/archives" -o Debug::NoLocking=1 -y -qq \
        --no-install-recommends --reinstall -d install \
        qemu-system-x86 linux-image-cloud-amd64 busybox-static cpio >/dev/null
    for package in "$vm"/archives/*.deb; do dpkg -x "$package" "$vm/unpacked"; done
fi
# The machine's first file system: a shell, Python, this package and what it needs.
image=$vm/image
rm -rf "$image"
mkdir -p "$image/bin" "$image/opt/site" "$image/proc" "$image/sys" "$image/dev" "$image/tmp"
cp "$vm/unpacked/bin/busybox" "$image/bin/busybox"
for name in sh sleep yes true; do ln -s busybox "$image/bin/$name"; done
"$python" scripts/limits_image.py "$image"
cp -r src/exec_server "$image/opt/site/exec_server"
mkdir -p "$image/opt/site/tests/support"
cp tests/support/attackers.py "$image/opt/site/tests/support/"
cp scripts/limits_in_vm.py "$image/opt/limits_in_vm.py"
cat >"$image/init" <<'INIT'
#!/bin/busybox sh
export PATH=/bin:/usr/bin
for pair in proc:/proc sysfs:/sys devtmpfs:/dev; do busybox mount -t ${pair%:*} none ${pair#*:}; done
busybox mkdir -p /dev/shm /dev/pts
busybox mount -t tmpfs -o mode=1777 none /dev/shm
busybox mount -t devpts none /dev/pts
busybox mount -t tmpfs -o mode=1777 none /tmp
busybox mount -t cgroup2 none /sys/fs/cgroup
cd /
PYTHONPATH=/opt/site PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 /opt/limits_in_vm.py
echo "ended with status $?"
busybox poweroff -f
INIT
chmod 755 "$image/init"
(cd "$image" && find . | "$vm/unpacked/bin/cpio" --quiet -o -H newc | gzip -1 >"$vm/image.gz")
libraries=$vm/unpacked/usr/lib/x86_64-linux-gnu:$vm/unpacked/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries timeout "${LIMITS_VM_SECONDS:-900}" \
    nice "$vm/unpacked/usr/bin/qemu-system-x86_64" -L "$vm/unpacked/usr/share/qemu" \
    -L "$vm/unpacked/usr/share/seabios" -machine q35,accel=tcg -cpu max -smp 2 -m 1536 \
    -nographic -no-reboot -kernel "$vm"/unpacked/boot/vmlinuz-* -initrd "$vm/image.gz" \
    -append "console=ttyS0 quiet panic=-1 random.trust_cpu=on places=${LIMITS_VM_PLACES:-}" </dev/null | tee "$vm/log"
grep -q "ended with status 0" "$vm/log"
