#!/usr/bin/env bash
# Stops a part of the cluster or starts it again: usage part.sh FOLDER start|stop etcd|apiserver|manager|scheduler|containerd|kubelet|index|kueue.
# part.sh FOLDER off node ends the kubelet and all that runs in pods at once, as a power cut does; "start kubelet" has the node back.
set -euo pipefail
run=$1/run name=$3
case $2 in
start) # one that runs already is left as it is
	if [ -e "$run/$name.pid" ] && kill -0 "$(cat "$run/$name.pid")" 2>/dev/null; then exit 0; fi
	setsid bash -c "echo \$\$ >'$run/$name.pid'; exec $(cat "$run/$name.command")" >>"$1/log/$name.log" 2>&1 </dev/null &
	;;
stop)
	[ -e "$run/$name.pid" ] || exit 0
	pid=$(cat "$run/$name.pid")
	kill "$pid" 2>/dev/null || true
	for _ in $(seq 100); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null || true
	rm -f "$run/$name.pid"
	;;
off)
	pid=$(cat "$run/kubelet.pid")
	kill -KILL "$pid"
	rm -f "$run/kubelet.pid"
	ctr -a "$run/containerd.sock" -n k8s.io tasks list -q | while read -r task; do
		ctr -a "$run/containerd.sock" -n k8s.io tasks kill -a -s KILL "$task" || true # it may have ended
	done
	;;
*)
	echo "part.sh: $2 is none of start, stop, off" >&2
	exit 2
	;;
esac
