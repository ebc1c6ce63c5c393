# The first process of a task's container: runs the command, $1 or the file of that name, and says how it ended. When this process is
# gone, so is everything in the container. Kept to what a POSIX shell knows; bash is taken where there is one, as it lets a command in
# the background have its interrupts.
box=/.trainyard/task
layer=/.trainyard/layer/env
shell=sh
if [ -n "${BASH_VERSION:-}" ] && command -v bash >/dev/null 2>&1; then
	shell=bash
	set -m
elif [ "$0" = "$box/run.sh" ] && command -v bash >/dev/null 2>&1; then
	exec bash "$box/./run.sh" "$@" # by another name: what is called bash may be a plain sh, as in BusyBox
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

# A file that must not be there yet: the shell makes it itself, which spares a process.
set -C
true >"$box/began" || exit 125 # it has been run
set +C

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
{
	echo "exit $code"
	if [ -n "$term" ]; then echo "term 1"; fi
} >"$box/status"

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

# tell FILE WORD NAME writes the number behind NAME in the file, or without NAME the one that is all of it, as that of WORD.
tell() {
	if [ -r "/sys/fs/cgroup$1" ]; then
		while read -r name value; do
			case $name in "${3:-}") echo "$2 $value" ;; *) [ -n "${3:-}" ] || echo "$2 $name" ;; esac
		done <"/sys/fs/cgroup$1"
	fi
}
{
	tell /memory/memory.max_usage_in_bytes peak
	tell /memory.peak peak
	tell /memory/memory.oom_control oom oom_kill
	tell /memory.events oom oom_kill
} >>"$box/status"
exit "$code"
