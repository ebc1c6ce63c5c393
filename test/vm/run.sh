#!/usr/bin/env bash
# Runs tests of packages in a virtual machine with Debian's kernel and nothing else beside them: a tree of cgroups version 2 with every
# controller, an init that is a shell, and, for arm64, the other processor. It is emulated, and some twenty times slower than the machine it
# runs on. Usage: test/vm/run.sh amd64|arm64 PACKAGE [flags of its tests]
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${1:?which processor: amd64 or arm64} package=${2:?which package, such as ./internal/target/process}
shift 2
declare -A emulator=([amd64]="qemu-system-x86_64 -machine q35" [arm64]="qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on")
declare -A console=([amd64]=ttyS0 [arm64]=ttyAMA0)
[ -n "${emulator[$arch]:-}" ] || { echo "processor $arch is neither amd64 nor arm64" >&2; exit 2; }
read -ra machine <<<"${emulator[$arch]}"
for need in "${machine[0]}" mmdebstrap cpio; do
	command -v "$need" >/dev/null || { echo "$need is missing: apt-get install qemu-system-x86 qemu-system-arm mmdebstrap cpio" >&2; exit 2; }
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-vm.XXXXXX")
trap 'rm -rf "$dir"' EXIT
kept=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}/vm-$arch-1.tar
if [ ! -s "$kept" ]; then
	mkdir -p "$(dirname "$kept")"
	# Nothing of the other processor is run here: packages are unpacked, not set up.
	mmdebstrap --quiet --arch="$arch" --variant=extract \
		--include="base-files,bash,dash,coreutils,findutils,grep,sed,gzip,tar,procps,python3,mount,util-linux,iproute2,linux-image-cloud-$arch" bookworm "$dir/kept.tar"
	mv "$dir/kept.tar" "$kept"
fi
mkdir "$dir/root"
tar -C "$dir/root" -xf "$kept"
mv "$dir"/root/boot/vmlinuz-* "$dir/kernel"
rm -rf "$dir"/root/boot "$dir"/root/lib/modules "$dir"/root/usr/lib/modules "$dir"/root/usr/share/{doc,man,locale}
[ -e "$dir/root/bin/sh" ] || ln -s dash "$dir/root/bin/sh"
echo 'root:x:0:0:root:/root:/bin/bash' >"$dir/root/etc/passwd"
CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go test -c -o "$dir/root/package.test" "$package"
if [ "$package" = ./cmd/trainyard ]; then
	CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go build -o "$dir/root/usr/bin/trainyard" ./cmd/trainyard
fi
printf '%q ' -test.v -test.timeout 20m "$@" >"$dir/root/arguments"
cat >"$dir/root/init" <<'INIT'
#!/bin/bash
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp TRAINYARD_TEST_PROGRAM=/usr/bin/trainyard
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
ip link set lo up
echo "$(uname -srm), cgroup controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
cd /root
eval "/package.test $(cat /arguments)"
echo "tests ended with status $?"
echo o >/proc/sysrq-trigger
sleep 60
INIT
chmod +x "$dir/root/init"
(cd "$dir/root" && find . | cpio --quiet -o -H newc | gzip -1 >"$dir/initrd")
timeout 1500 "${machine[@]}" -accel tcg -smp 2 -m 3072 -nographic -no-reboot -kernel "$dir/kernel" -initrd "$dir/initrd" \
	-append "console=${console[$arch]} panic=-1 quiet edd=off" </dev/null | tr -d '\r' | tee "$dir/out" | grep -avE '^(=== RUN|$)'
grep -aq '^tests ended with status 0' "$dir/out"
