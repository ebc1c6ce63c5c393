# Takes the program and the task on standard input into the pod that it is run in. $1 is lines for /etc/hosts, for clusters without DNS, $2 the
# task's name in the cluster, $3 "near" if what comes had better not be packed, $4 what the program's pieces in a volume are called, the size of
# all, how many there are, and for what machines they are, or nothing.
# It says "nowhere" and why if nothing can be written, "have" if both were sent already, or else "need", the machine, what there is, "task" or
# "nothing", and what can unpack, or "kept" where the pieces are there; then it reads a line with the number of bytes of the program, a line that
# is the task, empty where that is there already, and the bytes, unless they are there: of a program that is not packed a multiple of 65,536.
base=/trainyard
{ mkdir -p $base/bin $base/work && [ -w $base/bin ] && [ -w $base/work ]; } 2>/dev/null ||
	{ base=/tmp/trainyard && why=$(mkdir -p $base/bin 2>&1); } || { set -f && echo nowhere $why && exit 0; } # on one line
program=$base/bin/trainyard
mark=$base/bin/sent-$2 # a program without it is the image's own, which a pod was made into
if [ -e "$mark" ]; then
	echo have
	exit 0
fi
machine=$(uname -m)
pieces() {
	name=$1 count=$3
	shift 3
	case " $* " in *" $machine "*) ;; *) return 1 ;; esac
	set -- /trainyard/program/"$name".*
	[ $# -eq "$count" ] && [ -r "$1" ]
}
unpack=cat
if [ -n "$4" ] && pieces $4; then
	unpack=kept
elif [ "$3" != near ] && gzip -h >/dev/null 2>&1 </dev/null; then unpack='gzip -dc'; fi
has=nothing
if [ -r /trainyard/task/..data/task.json ]; then has=task; fi # a Secret's, not the image's own
echo "need $machine $has $unpack"
read -r size && IFS= read -r task || exit 1
if [ -n "$task" ]; then
	umask 077
	dir=/dev/shm/trainyard # memory: there may be secrets in it
	{ mkdir -p $dir && printf '%s\n' "$task" >$dir/task.json; } 2>/dev/null ||
		{ dir=$base/task && mkdir -p $dir && printf '%s\n' "$task" >$dir/task.json; } || exit 1
fi
part=$program.$$
if [ "$unpack" = kept ]; then
	cat /trainyard/program/"$name".* >"$part" && [ "$(wc -c <"$part")" -eq "$size" ]
elif [ "$unpack" = cat ]; then # in large pieces if that can be: head reads them so small that all who hand them on are woken up all the time
	{ dd bs=65536 count=$((size / 65536)) iflag=fullblock 2>/dev/null || [ -s "$part" ] || head -c "$size"; } >"$part"
	[ "$(wc -c <"$part")" -eq "$size" ]
else # unpacked as it comes: gzip says so if some of it is missing
	head -c "$size" | $unpack >"$part" && [ -s "$part" ]
fi
if [ $? -ne 0 ]; then
	rm -f "$part"
	exit 1
fi
chmod 755 "$part"
if [ -n "$1" ]; then { echo "$1" >>/etc/hosts; } 2>/dev/null; fi
mv "$part" "$program" && : >"$mark" || exit 1
kill -USR1 1 # the shell that waits for it, see bootstrap.sh
echo done
