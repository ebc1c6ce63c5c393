#!/usr/bin/env bash
# Ends what up.sh started below DIR, with its containers, and unmounts what they had mounted. With --wipe the folder goes too.
set -euo pipefail
dir=${1:?usage: down.sh DIR [--wipe]}
[ -d "$dir/run" ] || exit 0
dir=$(cd "$dir" && pwd)
engine=$(cd "$(dirname "$0")" && pwd)/engine.sh
if [ -S "$dir/run/docker.sock" ]; then
	export DOCKER_HOST=unix://$dir/run/docker.sock
	timeout 20 docker ps -aq 2>/dev/null | timeout 60 xargs -r docker rm -f >/dev/null 2>&1 || true
fi
for daemon in dockerd registry containerd; do "$engine" stop "$dir" "$daemon"; done
# What a killed engine left running goes with its shim.
for cmdline in /proc/[0-9]*/cmdline; do
	if { tr '\0' ' ' <"$cmdline"; } 2>/dev/null | grep -q "^[^ ]*containerd-shim.* -address $dir/run/"; then
		pid=${cmdline#/proc/}
		kill -KILL "${pid%/cmdline}" 2>/dev/null || true
	fi
done
for _ in 1 2 3; do
	awk -v d="$dir/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r mount; do
		umount "$mount" 2>/dev/null || umount -l "$mount" 2>/dev/null || true
	done
done
rm -rf "$dir/run" "$dir/exec"
if [ "${2:-}" = --wipe ]; then rm -rf "$dir"; fi
