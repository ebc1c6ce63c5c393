#!/usr/bin/env bash
# Starts and ends one daemon of what up.sh made below DIR, or has it hang: engine.sh start|stop|kill|freeze|thaw DIR dockerd|containerd|registry.
# Tests use it to take the engine away in the middle of a job. DOCKERD_ARGS goes to dockerd, such as --live-restore.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"
verb=${1:?usage: engine.sh start|stop|kill|freeze|thaw DIR DAEMON} dir=${2:?no DIR} name=${3:?no DAEMON}
pidfile=$dir/run/$name.pid

alive() { # ours: not one that was given the same number since
	local pid
	pid=$(cat "$pidfile" 2>/dev/null) && [ -n "$pid" ] && [ -d "/proc/$pid" ] &&
		! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null && { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF "$dir"
}

launch() { # COMMAND...: in the background, in a session of its own
	setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null &
	echo $! >"$pidfile"
}

start() {
	if alive; then return; fi
	case $name in
	containerd) launch containerd --config "$dir/etc/containerd.toml" ;;
	registry) launch docker-registry serve "$dir/etc/registry.yml" ;;
	dockerd)
		for _ in $(seq 100); do
			[ ! -S "$dir/run/containerd.sock" ] || break
			sleep 0.05
		done
		rm -f "$dir/run/dockerd.own.pid"
		# shellcheck disable=SC2086
		PATH="$dir/bin:$PATH" launch dockerd --host "unix://$dir/run/docker.sock" --containerd "$dir/run/containerd.sock" --data-root "$dir/data" \
			--exec-root "$dir/exec/docker" --pidfile "$dir/run/dockerd.own.pid" --config-file "$dir/etc/daemon.json" --bridge none --iptables=false \
			--ip6tables=false --ip-forward=false --ip-masq=false --oom-score-adjust 0 --cgroup-parent trainyard-engine ${DOCKERD_ARGS:-}
		;;
	*) echo "engine.sh: there is no daemon $name" >&2 && exit 2 ;;
	esac
}

stop() { # SIGNAL
	if alive; then kill -s "$1" "$(cat "$pidfile")" && kill -s CONT "$(cat "$pidfile")" 2>/dev/null || true; fi
	for _ in $(seq 400); do
		alive || break
		sleep 0.05
	done
	if alive; then kill -s KILL "$(cat "$pidfile")"; fi
	rm -f "$pidfile"
}

case $verb in
start) start ;;
stop) stop TERM ;;
kill) stop KILL ;;
freeze) if alive; then kill -s STOP "$(cat "$pidfile")"; fi ;;
thaw) if alive; then kill -s CONT "$(cat "$pidfile")"; fi ;;
*) echo "engine.sh: there is no verb $verb" >&2 && exit 2 ;;
esac
