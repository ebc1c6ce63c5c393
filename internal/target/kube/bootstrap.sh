# The first process of a task's pod: waits until the program has been sent, and becomes it.
# $1 is the rank of index 0, $2 the hosts of all ranks, $3 the task's name in the cluster; what follows goes to the program.
trap 'exit 143' TERM INT
trap : USR1 # sent when the program is there
base=/trainyard
{ mkdir -p $base/bin $base/work && [ -w $base/bin ] && [ -w $base/work ]; } 2>/dev/null || { base=/tmp/trainyard && mkdir -p $base/bin $base/work 2>/dev/null; }
program=$base/bin/trainyard
mark=$base/bin/sent-$3 # the image may hold a program of its own
heard=$base/bin/read-$3
tries=0
while [ ! -e "$mark" ]; do
	tries=$((tries + 1))
	if [ "$tries" -gt 3600 ]; then
		echo "nobody sent the program for an hour" | tee /dev/termination-log
		exit 75
	fi
	sleep 1 &
	[ -e "$mark" ] || wait $!
	kill -PIPE $! && wait $!
done 2>/dev/null
trap - TERM INT
rank=$(($1 + ${JOB_COMPLETION_INDEX:-0})) hosts=$2
for task in /dev/shm/trainyard $base/task /trainyard/task; do # what was sent goes before what the image may hold
	if [ -r $task/task.json ]; then break; fi
done
shift 3
export TRAINYARD_WORK_DIR=$base/work TRAINYARD_GRACE_FILE=$base/bin/grace TRAINYARD_READ_FILE=$heard
exec "$program" task --pod-log --file $task/task.json --result /dev/termination-log --rank "$rank" --hosts "$hosts" \
	--dir $base/work/task --cache $base/work/cache "$@"
