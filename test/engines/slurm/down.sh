#!/usr/bin/env bash
# Ends what up.sh started below DIR, and every job that still runs there. The files stay.
set -euo pipefail
dir=${1:?usage: down.sh DIR}
[ -f "$dir/run/pids" ] || exit 0
export SLURM_CONF=$dir/etc/slurm.conf
timeout 5 scancel --me --full --signal=KILL 2>/dev/null || true
timeout 5 scancel --me 2>/dev/null || true
alive() { # of our processes: not of one that was given the same number since; slurmdbd knows us by its environment alone
	[ -d "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null &&
		{ tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF "$dir" || grep -qzxF "SLURM_CONF=$dir/etc/slurmdbd.conf" "/proc/$1/environ" 2>/dev/null; }
}
# slurmctld and sshd may have been started again by a test, so they say themselves which they are.
pids() { cut -d' ' -f1 "$dir/run/pids"; cat "$dir"/run/slurmctld.pid "$dir"/run/sshd.pid "$dir"/run/slurmd.*.pid 2>/dev/null || true; }
all=$(pids | sort -un)
for signal in TERM KILL; do
	for pid in $all; do
		if alive "$pid"; then kill -s "$signal" "$pid" 2>/dev/null || true; fi
	done
	for _ in $(seq 60); do
		left=0
		for pid in $all; do if alive "$pid"; then left=1; fi; done
		[ "$left" = 1 ] || break
		sleep 0.1
	done
done
# What looks after a job outlives the slurmd that started it, and is known by that one's log.
for process in /proc/[0-9]*; do
	if [ "$(cat "$process/comm" 2>/dev/null)" = slurmstepd ] && readlink "$process/fd/3" 2>/dev/null | grep -qF "$dir/log/slurmd."; then
		kill -s KILL "${process#/proc/}" 2>/dev/null || true
	fi
done
for node in $(awk '/^NodeName=/ { sub("NodeName=", "", $1); print $1 }' "$SLURM_CONF"); do
	for pid in $(find /sys/fs/cgroup -path "*/slurm_$node*/cgroup.procs" -exec cat {} + 2>/dev/null | sort -un); do
		kill -s KILL "$pid" 2>/dev/null || true
	done
	for _ in $(seq 20); do # what was killed needs a moment to be gone
		[ -n "$(find /sys/fs/cgroup -path "*/slurm_$node*/cgroup.procs" -exec cat {} + 2>/dev/null)" ] || break
		sleep 0.1
	done
	find /sys/fs/cgroup -depth -type d -path "*/slurm_$node*" -exec rmdir {} + 2>/dev/null || true
done
rm -f "$dir/run/pids"
