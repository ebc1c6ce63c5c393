# The first process of a task's pod: waits until the program has been sent, or is in the node's cache, and becomes it.
# $1 is the rank of index 0, $2 the hosts of all ranks, $3 the node's cache, $4 what the program is called there for each machine,
# MACHINE:NAME MACHINE:NAME, or nothing; what follows goes to the program.
program=/trainyard/bin/trainyard
cached=
if [ -n "$4" ]; then
	machine=$(uname -m)
	for name in $4; do
		if [ "${name%%:*}" = "$machine" ]; then cached=$3/${name#*:}; fi
	done
fi
trap 'exit 143' TERM INT
tries=0
while [ ! -x "$program" ]; do
	if [ -n "$cached" ] && [ -x "$cached" ]; then
		program=$cached
		break
	fi
	tries=$((tries + 1))
	if [ "$tries" -gt 5000 ]; then
		echo "nobody sent the program for an hour" | tee /dev/termination-log
		exit 75
	fi
	if [ "$tries" -gt 1200 ]; then sleep 1; else sleep 0.05 2>/dev/null || sleep 1; fi
done
trap - TERM INT
rank=$(($1 + ${JOB_COMPLETION_INDEX:-0})) hosts=$2
shift 4
exec "$program" task --pod-log --file /trainyard/task/task.json --result /dev/termination-log --rank "$rank" --hosts "$hosts" \
	--dir /trainyard/work/task --cache /trainyard/work/cache "$@"
