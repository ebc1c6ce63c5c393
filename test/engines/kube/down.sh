#!/usr/bin/env bash
# Ends the cluster that up.sh FOLDER made, with everything that runs in it, and removes the folder.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(cd "$1" && [ -d pki ] && pwd) ns=trainyard-kube
[ -n "$dir" ] || { echo "down.sh: $1 is no cluster of up.sh" >&2; exit 1; }
for part in kueue index kubelet scheduler manager apiserver; do "$here/part.sh" "$dir" stop "$part"; done
# What is left in pods ends with containerd's shims, which name this folder; their network namespaces are containerd's to tell.
networks=()
if [ -S "$dir/run/containerd.sock" ]; then
	for container in $(ctr -a "$dir/run/containerd.sock" -n k8s.io containers list -q 2>/dev/null); do
		networks+=($(ctr -a "$dir/run/containerd.sock" -n k8s.io containers info "$container" | grep -o 'netns/cni-[-0-9a-f]*' | sort -u))
	done
	ctr -a "$dir/run/containerd.sock" -n k8s.io tasks list -q 2>/dev/null | while read -r task; do
		ctr -a "$dir/run/containerd.sock" -n k8s.io tasks kill -a -s KILL "$task" >/dev/null 2>&1
	done
fi
for part in containerd etcd; do "$here/part.sh" "$dir" stop "$part"; done
for proc in /proc/[0-9]*; do
	{ tr '\0' ' ' <"$proc/cmdline"; } 2>/dev/null | grep -q "^[^ ]*containerd-shim[^ ]* .*$dir/" && kill -KILL "${proc#/proc/}" 2>/dev/null
done
[ "$(cat /run/lock/trainyard-kube.lock)" != "$dir" ] || ip netns pids "$ns" 2>/dev/null | while read -r pid; do kill -KILL "$pid" 2>/dev/null; done
for _ in 1 2 3 4 5; do
	awk -v d="$dir/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | while read -r mount; do umount "$mount" 2>/dev/null || umount -l "$mount"; done
	grep -q " $dir/" /proc/mounts || break
	sleep 0.2
done
for network in $(printf '%s\n' "${networks[@]:-}" | sort -u); do ip netns del "${network#netns/}" 2>/dev/null; done
if [ "$(cat /run/lock/trainyard-kube.lock)" = "$dir" ]; then
	ip link del tykube 2>/dev/null
	ip netns del "$ns" 2>/dev/null
fi
# The kubelet's cgroups outlive it.
for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do
	[ -d "$tree/kubepods" ] && find "$tree/kubepods" -depth -type d -exec rmdir {} + 2>/dev/null
done
rm -rf --one-file-system "$dir"
exit 0
