# The first process of a task's container: runs the command, $1 or the file of that name, and says how it ended. When this process is
# gone, so is everything in the container. Kept to what a POSIX shell knows; bash is taken where there is one, as it lets a command in
# the background have its interrupts.
box=/.trainyard/task
layer=/.trainyard/layer/env
shell=sh
if command -v bash >/dev/null 2>&1; then
	shell=bash
	if [ -z "${BASH_VERSION:-}" ]; then exec bash "$box/run.sh" "$@"; fi
	set -m
fi

term=
trap 'term=x$term; kill -TERM -1' TERM # a stop is for every process in the container; the engine tells only this one

: "${LANG:=C.UTF-8}"
export LANG
if [ -d "$layer/bin" ]; then
	: "${PYTHONUSERBASE:=$box/python}" # where pip puts what the command installs: the layer is shared, and cannot be written to
	PATH=$PYTHONUSERBASE/bin:$layer/bin:$PATH
	export PATH PYTHONUSERBASE
fi

mkdir "$box/began" || exit 125 # it has been run

# Output goes through a pipe: a command may open /dev/stderr anew, which would empty a file.
cat=
if command -v cat >/dev/null 2>&1; then
	(
		trap '' TERM INT HUP QUIT
		exec cat <"$box/pipe" >>"$box/log"
	) &
	cat=$!
	exec 3>"$box/pipe"
else
	exec 3>>"$box/log"
fi
exec >/dev/null 2>&1 # what the shell remarks on its jobs is for nobody

if [ -z "$term" ]; then
	if [ $# -gt 0 ]; then
		"$shell" -c "$1" </dev/null >&3 2>&3 3>&- &
	else
		"$shell" "$box/command" </dev/null >&3 2>&3 3>&- &
	fi
	pid=$!
	if [ -n "$term" ]; then kill -TERM -1; fi # it came before there was anyone to be told
	while :; do
		before=$term
		wait "$pid"
		code=$?
		[ "$before" = "$term" ] && break # else it was the signal that ended the wait
	done
else
	code=143
fi
echo "exit $code" >"$box/status"
if [ -n "$term" ]; then echo "term 1" >>"$box/status"; fi

# others finds the processes that are left, besides this one and cat.
others() {
	others=
	for p in /proc/[0-9]*; do
		p=${p#/proc/}
		case $p in 1 | "$cat") continue ;; esac
		read -r stat <"/proc/$p/stat" || continue
		case ${stat##*) } in Z* | X*) continue ;; esac
		others="$others $p"
	done
	[ -n "$others" ]
}

# Of a task that is to stop, what is left keeps its grace: a shell dies at once, the training that it waits for may be writing a checkpoint.
while [ -n "$term" ] && others; do sleep 0.05 || sleep 1; done
round=0
while others && [ "$round" -lt 200 ]; do
	for p in $others; do kill -KILL "$p"; done
	round=$((round + 1))
	[ "$round" -lt 20 ] || sleep 0.01 || break
done

exec 3>&-
while [ -n "$cat" ] && kill -0 "$cat"; do wait "$cat"; done

# number FILE NAME... prints the number in a file, or the one behind NAME in it.
number() {
	while read -r name value; do
		if [ -z "${2:-}" ]; then echo "$name"; elif [ "$name" = "$2" ]; then echo "$value"; fi
	done <"$1"
}
for try in /memory/memory.max_usage_in_bytes /memory.peak; do
	if [ -r "/sys/fs/cgroup$try" ]; then echo "peak $(number "/sys/fs/cgroup$try")"; fi
done >>"$box/status"
for try in /memory/memory.oom_control /memory.events; do
	if [ -r "/sys/fs/cgroup$try" ]; then echo "oom $(number "/sys/fs/cgroup$try" oom_kill)"; fi
done >>"$box/status"
exit "$code"
