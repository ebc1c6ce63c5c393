# Says to the program in the pod how much of the log was read: $1 bytes. $2 is the task's name in the cluster.
base=/trainyard
[ -w $base/bin ] || base=/tmp/trainyard
echo "$1" >$base/bin/read.new && mv $base/bin/read.new "$base/bin/read-$2"
