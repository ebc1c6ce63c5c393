# Starts the processes of a task and stays until all of them have ended. The first that fails ends the others, and its exit status is the
# task's. Set before this: command, logs, head (the rank that writes to the task's own output) and grace (seconds). After it come calls
# of process, and one of supervise. Kept to what bash 3.2 knows.

set -m                     # every process leads a group of its own, so that all it has started can be ended with it
exec 3>&1 4>&2 2>/dev/null # the task's own output; what bash remarks on ended jobs is for nobody

leaders=() news_of=() silent=() workers=0 left=0 result=0 deadline=0 told=0

pipe=$(mktemp -d "${TMPDIR:-/tmp}/launch.XXXXXX") && mkfifo "$pipe/news" && exec 9<>"$pipe/news" || {
	echo "the processes could not be started: no pipe can be made in ${TMPDIR:-/tmp}" >&4
	exit 1
}
rm -rf "$pipe"
mkdir -p "$logs"

# process RANK KIND VARIABLE=VALUE… starts one process; KIND is worker or ps.
process() {
	local rank=$1 kind=$2 index=${#leaders[@]}
	shift 2
	(
		trap : TERM INT HUP # whatever ends the process, say so
		if [ "$rank" != "$head" ]; then
			exec 3>>"$logs/std_log_process_$rank.txt" 4>&3
		fi
		for assignment; do export "$assignment"; done
		bash -c "$command" </dev/null >&3 2>&4 3>&- 4>&- 9>&-
		echo "$index $kind $?" >&9
	) &
	leaders+=("$!") news_of+=("") silent+=(0)
	left=$((left + 1))
	if [ "$kind" = worker ]; then workers=$((workers + 1)); fi
}

# tell SIGNAL sends a signal to every process and what it started.
tell() {
	local leader
	for leader in "${leaders[@]}"; do kill "-$1" -- "-$leader"; done
}

# wind_up ends what is left, with force when the grace is over.
wind_up() {
	if [ "$deadline" = 0 ]; then
		deadline=$((SECONDS + grace))
		[ "$told" = 1 ] || tell TERM
		told=1
	fi
}

# took_note INDEX KIND STATUS: a process has ended.
took_note() {
	[ -n "${news_of[$1]}" ] && return
	news_of[$1]=$3
	left=$((left - 1))
	if [ "$2" = worker ]; then workers=$((workers - 1)); fi
	if [ "$3" != 0 ] && [ "$result" = 0 ] && { [ "$2" = worker ] || [ "$workers" -gt 0 ]; }; then
		result=$3
		wind_up
	elif [ "$workers" = 0 ]; then
		wind_up # parameter servers serve for ever: they end with the last worker
	fi
}

# look_for_silent finds processes that were killed together with who would have told us.
look_for_silent() {
	local i
	for ((i = 0; i < ${#leaders[@]}; i++)); do
		if [ -z "${news_of[$i]}" ] && ! kill -0 "${leaders[$i]}"; then
			silent[$i]=$((silent[i] + 1))
			if [ "${silent[$i]}" -gt 1 ]; then took_note "$i" worker 137; fi
		fi
	done
}

# linger leaves what processes have started the rest of the grace: a shell dies of SIGTERM at once, what it waited for may be saving its work.
linger() {
	local leader
	for leader in "${leaders[@]}"; do
		while [ "$SECONDS" -lt "$deadline" ] && lives "$leader"; do sleep 0.1; done
	done
}

# lives says whether something of the group that LEADER led still runs: who would bury the dead of it may be slow, or not there.
lives() {
	local file line state parent group rest
	kill -0 -- "-$1" || return 1
	[ -e /proc/self/stat ] || return 0
	for file in /proc/[0-9]*/stat; do
		read -r line <"$file" || continue
		read -r state parent group rest <<<"${line##*) }"
		if [ "$group" = "$1" ] && [ "$state" != Z ] && [ "$state" != X ]; then return 0; fi
	done
	return 1
}

# supervise waits for all processes and ends the script.
supervise() {
	local index kind status
	trap 'told=1' TERM INT HUP # whoever ends a task tells all its processes, and a second signal comes in the middle of what they do about the first
	while [ "$left" -gt 0 ]; do
		if read -r -t 1 -u 9 index kind status; then
			took_note "$index" "$kind" "$status"
		else
			look_for_silent
		fi
		if [ "$deadline" != 0 ] && [ "$SECONDS" -ge "$deadline" ]; then break; fi
	done
	if [ "$deadline" != 0 ]; then
		if [ "$result" != 0 ]; then linger; fi
		tell KILL
	fi
	exit "$result"
}
