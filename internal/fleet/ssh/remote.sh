# Runs on a machine, fed to sh on its standard input after lines that set:
#   ID NAME    the machine's ID and the name of its folder; never empty, without control characters
#   CA         the certificate agents trust
# and, for some calls, more. Lines of the answer begin with "@@"; a script that was cut off on its way does nothing, because its last line
# calls a function. POSIX sh and the usual small tools (also busybox's) are all it needs.
set -u
umask 077
LC_ALL=C
export LC_ALL
# fail NEXT TO WHAT WENT WRONG: what we were doing, for the message; the reason stands on standard error.
say() { printf '@@ %s %s\n' "$1" "${2-}"; }
fail() { say failed "$1"; exit 1; }

BOOT=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
HOME=$(cd "$HOME" && pwd -P) && cd "$HOME" || fail "enter the home folder"
B=$HOME/.trainyard
D=$B/$NAME

# started PID: when a process began, in ticks since boot; fails if it is not there or has ended. See proc_pid_stat(5).
started() {
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	stat=${stat##*) } # the name before it may hold anything
	set -- $stat
	case ${1-} in '' | Z | X) return 1 ;; esac
	shift 19
	printf '%s\n' "$1"
}

# put FILE TEXT: replaces a file whole or not at all, without showing the text in any list of processes.
put() {
	cat >"$1.part" <<EOF || return 1
$2
EOF
	mv -f "$1.part" "$1"
}

nap() { sleep 0.1 2>/dev/null || sleep 1; }

# living: the machine's agent as "PID PORT" (no port if its command line cannot be read), by what it was
# written down as or, if that was cut off, by its command line.
living() {
	pid= start= boot=
	{ read -r pid start boot <"$D/own/agent"; } 2>/dev/null
	if [ -n "$pid" ] && [ "$boot" = "$BOOT" ] && [ "$(started "$pid")" = "$start" ]; then
		printf '%s %s\n' "$pid" "$(port "$pid")"
		return 0
	fi
	for f in $(grep -lsF -e "$D/own/node" /proc/[0-9]*/cmdline); do
		pid=${f#/proc/}
		pid=${pid%/cmdline}
		case $(tr '\0' ' ' <"$f" 2>/dev/null) in
		*" agent --node $ID --dir $D/own/node "*)
			start=$(started "$pid") || continue
			put "$D/own/agent" "$pid $start $BOOT"
			printf '%s %s\n' "$pid" "$(port "$pid")"
			return 0
			;;
		esac
	done
	return 1
}

# port PID: at which port an agent dials home.
port() { tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | sed -n 's|^https://127\.0\.0\.1:\([0-9]*\)$|\1|p' | head -n 1; }

hello() {
	say os "$(uname -s)"
	say arch "$(uname -m)"
	say home "$HOME"
	say boot "$BOOT"
	command -v python3 >/dev/null 2>&1 && say python yes
	return 0
}

free() { df -Pk "$HOME" 2>/dev/null | { read -r _ && read -r _ _ _ kb _ && printf '%s\n' "$kb"; }; }

# probe: what there is, and whether files and programs can be in the home folder. Leaves nothing.
probe() {
	say free "$(free)"
	say cpus "$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
	say memory "$(sed -n 's/^MemTotal: *\([0-9]*\) kB.*/\1/p' /proc/meminfo 2>/dev/null)"
	command -v python3 >/dev/null 2>&1 && say version "$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)"
	if command -v nvidia-smi >/dev/null 2>&1; then
		nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | while read -r gpu; do say gpu "$gpu"; done
	fi
	engine=${DOCKER_HOST:-unix:///var/run/docker.sock}
	case $engine in
	unix://*) [ -S "${engine#unix://}" ] && [ -w "${engine#unix://}" ] && say engine docker ;;
	*) say engine docker ;;
	esac
	f=$HOME/.trainyard-probe-$$
	trap 'rm -f "$f"' EXIT
	printf '#!/bin/sh\nexit 0\n' >"$f" || fail "write in the home folder"
	chmod 700 "$f" && "$f" || fail "run a program in the home folder"
}

# tunnel: writes down which process holds this connection, and ends the one of a connection that was lost: it may hold our port for hours.
tunnel() {
	[ -d "$D" ] || return 0
	pid= start= boot=
	{ read -r pid start boot <"$D/tunnel"; } 2>/dev/null
	if [ -n "$pid" ] && [ "$boot" = "$BOOT" ] && [ "$pid" != "$PPID" ] && [ "$(started "$pid")" = "$start" ]; then
		kill "$pid" 2>/dev/null
		n=0
		while [ "$(started "$pid")" = "$start" ] && [ $n -lt 30 ]; do
			n=$((n + 1))
			nap
		done
	fi
	put "$D/tunnel" "$PPID $(started "$PPID") $BOOT" 2>/dev/null
	return 0
}

# look: whether the agent lives, and if not what it said last. Keeps its log from growing without end.
look() {
	n=0
	while agent=$(living) && [ -z "${agent#* }" ] && [ $n -lt 20 ]; do # it begins, or ends: it has no command line yet, or none any more
		n=$((n + 1))
		nap
	done
	if [ -n "$agent" ]; then
		say agent "$agent"
		[ "$(cat "$D/own/ca.pem" 2>/dev/null)" = "$CA" ] || say ca other
	else
		say last "$(tail -n 20 "$D/own/agent.log" 2>/dev/null | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c 1-300)"
	fi
	log=$D/own/agent.log
	if [ "$(wc -c 2>/dev/null <"$log" || echo 0)" -gt 10485760 ]; then
		cp "$log" "$log.1" && : >"$log"
	fi
	return 0
}

# digest FILE: its SHA-256; nothing where no tool for that is.
digest() {
	{ sha256sum "$1" || shasum -a 256 "$1" || openssl dgst -sha256 -r "$1"; } 2>/dev/null | cut -d ' ' -f 1
}

# whole FILE: whether it is the program SUM of SIZE bytes.
whole() {
	[ -f "$1" ] && [ "$(($(wc -c <"$1")))" = "$SIZE" ] || return 1
	have=$(digest "$1")
	[ -z "$have" ] || [ "$have" = "$SUM" ]
}

# ready: makes the folders and files of the machine. What program it needs is written before the program comes: so it is not cleared away.
ready() {
	mkdir -p "$D/own/node" "$D/cache" && chmod 700 "$B" "$D" "$D/own" || fail "make the folder $D"
	put "$D/program" "$SUM" && put "$D/own/join-token" "$TOKEN" && put "$D/own/ca.pem" "$CA" || fail "write into the folder $D"
	mkdir -p "$B/bin" || fail "make the folder $B/bin"
	[ -f "$D/tunnel" ] || put "$D/tunnel" "$PPID $(started "$PPID") $BOOT"
}

# ensure: starts the agent, or says that it needs the program first.
ensure() {
	ready
	if whole "$B/bin/$SUM/trainyard"; then
		start
	else
		say free "$(free)"
		say need program
	fi
}

# settle: the program has come as PART; then starts the agent.
settle() {
	whole "$B/bin/$PART" || fail "check the program: what arrived is not what was sent"
	chmod 700 "$B/bin/$PART" && mkdir -p "$B/bin/$SUM" && mv -f "$B/bin/$PART" "$B/bin/$SUM/trainyard" || fail "name the program"
	start
}

start() {
	if agent=$(living); then
		say agent "$agent"
		return 0
	fi
	clear
	cd "$D" || fail "enter the folder $D"
	set -- agent --node "$ID" --dir "$D/own/node" --server "https://127.0.0.1:$PORT" --ca "$D/own/ca.pem" --token-file "$D/own/join-token" \
		--group "$NAME" --size "$VM" --cpus "$CPUS" --memory-mb "$MEMORY" --cache "$D/cache" --hide "$D/own" --address "$ADDRESS" --orphan-after 30m
	apart=nohup
	command -v setsid >/dev/null 2>&1 && apart=setsid
	TRAINYARD_MACHINE=$D TRAINYARD_NODE=$ID $apart "$B/bin/$SUM/trainyard" "$@" </dev/null >>"$D/own/agent.log" 2>&1 &
	pid=$!
	put "$D/own/agent" "$pid $(started "$pid") $BOOT" || { kill -9 "$pid"; fail "write down the agent"; }
	say agent "$pid $PORT"
}

# clear: programs, and parts of them, that no machine here names any more go.
clear() {
	for b in "$B"/bin/*; do
		[ -e "$b" ] || continue
		sum=${b##*/}
		cat "$B"/*/program 2>/dev/null | grep -qxF -e "${sum%%.*}" || rm -rf "$b"
	done
}

# drop: takes away the part of the program that came.
drop() { rm -f "$B/bin/$PART"; }

# halt: ends the agent alone, not its tasks.
halt() {
	n=0
	while agent=$(living); do
		sig=TERM
		[ $n -ge 30 ] && sig=KILL
		[ $n -ge 60 ] && fail "end the agent"
		kill -s $sig "${agent%% *}" 2>/dev/null
		n=$((n + 1))
		nap
	done
}

# mine: whether an environment, a variable a line, is of this machine.
mine() {
	node=no other=no
	while IFS= read -r v; do
		case $v in
		"TRAINYARD_MACHINE=$D" | "TRAINYARD_TASK_DIR=$D/"*) return 0 ;;
		"TRAINYARD_NODE=$ID") node=yes ;;
		TRAINYARD_MACHINE=* | TRAINYARD_TASK_DIR=*) other=yes ;; # a node of that ID of another server
		esac
	done
	[ $node$other = yesno ]
}

groups() { find /sys/fs/cgroup -type d -path "*/trainyard/$NAME" 2>/dev/null; }

# ours: every process of the machine: by its environment, which children inherit, and by its cgroup.
ours() {
	for f in $(grep -lsF -e "TRAINYARD_MACHINE=$D" -e "TRAINYARD_TASK_DIR=$D/" -e "TRAINYARD_NODE=$ID" /proc/[0-9]*/environ); do
		pid=${f#/proc/}
		pid=${pid%/environ}
		[ "$pid" != $$ ] && started "$pid" >/dev/null && tr '\0' '\n' <"$f" 2>/dev/null | mine && printf '%s\n' "$pid"
	done
	groups | while IFS= read -r g; do
		find "$g" -name cgroup.procs -exec cat {} + 2>/dev/null | while read -r pid; do
			started "$pid" >/dev/null && printf '%s\n' "$pid"
		done
	done
	return 0
}

# shrink: ends the agent and all that ran here, and leaves nothing.
shrink() {
	n=0
	while agent=$(living) && [ $n -lt 30 ]; do
		[ $n = 0 ] && kill "${agent%% *}" 2>/dev/null
		n=$((n + 1))
		nap
	done
	n=0
	while pids=$(ours) && [ -n "$pids" ]; do
		[ $n -ge 100 ] && fail "end the processes $(printf '%s ' $pids)"
		groups | while IFS= read -r g; do [ -w "$g/cgroup.kill" ] && echo 1 >"$g/cgroup.kill"; done 2>/dev/null # on v2 all at once
		kill -9 $pids 2>/dev/null
		n=$((n + 1))
		nap
	done
	groups | while IFS= read -r g; do
		find "$g" -depth -type d -exec rmdir {} \; 2>/dev/null
		rmdir "${g%/*}" 2>/dev/null # if it was the last one there
	done
	if [ -e "$D" ] || [ -h "$D" ]; then
		chmod -R u+rwX "$D" 2>/dev/null # caches may be read-only
		rm -rf "$D" || fail "remove the folder $D"
	fi
	rm -f "$B"/bin/*.part-"$NAME"
	clear
	rmdir "$B/bin" "$B" 2>/dev/null
	return 0
}
