# The first process of a task's pod: waits until the program has been sent, and becomes it.
# $1 is the rank of index 0, $2 the hosts of all ranks, $3 the task's name in the cluster. $4 is what the program's pieces in a volume are called,
# the size of all, how many there are, and for what machines they are, and $5 what to ask with it, or both are nothing. What follows goes to the program.
trap 'exit 143' TERM INT
trap : USR1 # sent when the program is there
base=/trainyard
{ mkdir -p $base/bin $base/work && [ -w $base/bin ] && [ -w $base/work ]; } 2>/dev/null || { base=/tmp/trainyard && mkdir -p $base/bin $base/work 2>/dev/null; }
program=$base/bin/trainyard
mark=$base/bin/sent-$3 # the image may hold a program of its own
heard=$base/bin/read-$3
ask() { # with the program, if that is there already; 3: it was told, and cannot begin
	machine=$(uname -m)
	name=$1 size=$2 count=$3
	shift 3
	case " $* " in *" $machine "*) ;; *) return 1 ;; esac
	set -- /trainyard/program/"$name".*
	[ $# -eq "$count" ] && cat "$@" >$program.asks && [ "$(wc -c <$program.asks)" -eq "$size" ] && chmod 755 $program.asks || return 1
	(umask 077 && mkdir -p /dev/shm/trainyard $base/task)
	for try in 1 2 3; do
		$program.asks ask "$question" /trainyard/program/ticket "$mark" /dev/shm/trainyard/task.json $base/task/task.json
		code=$?
		if [ $code -le 128 ] || [ -e "$mark" ]; then break; fi # or it was killed, and may have been told
	done
	[ $code -eq 0 ] || return $code
	[ -e "$mark" ] || { mv $program.asks $program && : >"$mark"; } || return 3
}
question=$5
if [ -n "$question" ]; then
	{ ask $4; code=$?; rm -f $program.asks; exit $code; } &
	wait $!
	if [ $? -eq 3 ]; then
		echo "the task cannot be written down in the pod" | tee /dev/termination-log
		exit 75
	fi
fi 2>/dev/null
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
shift 5
export TRAINYARD_WORK_DIR=$base/work TRAINYARD_GRACE_FILE=$base/bin/grace TRAINYARD_READ_FILE=$heard
exec "$program" task --pod-log --file $task/task.json --result /dev/termination-log --rank "$rank" --hosts "$hosts" \
	--dir $base/work/task --cache $base/work/cache "$@"
