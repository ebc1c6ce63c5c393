#!/usr/bin/env bash
# A Slurm of its own on this machine, for tests: munged, slurmctld and NODES slurmd (4) on loopback, an sshd with keys of its own as login
# node, and slurmrestd on a socket, everything below DIR and nothing in /etc. Needs root and the packages slurm-wlm, munge, openssh-server
# and slurmrestd; without one of the last two the tests of that way in are left out. The last lines printed are what the tests need:
#   eval "$(test/engines/slurm/up.sh DIR)"      and afterwards      test/engines/slurm/down.sh DIR
# NODES, too, may be in the environment; CPUS and MEMORY_MB are what each node claims to have, whatever the machine has. With ACCOUNTING=1 it
# has a slurmdbd (packages slurmdbd and mariadb-server-core), runs nothing without an account, and has account team, with QOS normal and, for
# one job at a time, single; account idle may not use single.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"
dir=${1:?usage: up.sh DIR [NODES]} nodes=${2:-${NODES:-4}}
cpus=${CPUS:-64} memory=${MEMORY_MB:-262144}
for program in munged slurmctld slurmd sbatch; do
	command -v "$program" >/dev/null || { echo "up.sh: there is no $program: apt-get install slurm-wlm munge" >&2; exit 1; }
done
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
conf=$dir/etc/slurm.conf
[ ! -e "$dir/run/pids" ] || { echo "up.sh: $dir/run/pids is there: run down.sh $dir first" >&2; exit 1; }
rm -rf "$dir/state" "$dir/spool" "$dir/db" "$dir/run/sql.sock" # of an earlier cluster there, which had another name
mkdir -p "$dir"/{etc,state,spool,log,run}
chmod 755 "$dir" "$dir/run"

# Several may run at once, so each takes a row of ports that nobody listens on.
free() { for port in $(seq "$1" $(($1 + nodes))); do ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 1; done; }
port=$((10000 + RANDOM % 20000))
until free "$port"; do port=$((10000 + RANDOM % 20000)); done

# Memory is held, and nothing of a job is left behind, where cgroups can be made.
track=proctrack/linuxproc task=task/none ram=no
if mkdir "/sys/fs/cgroup/memory/trainyard-try-$$" 2>/dev/null; then
	rmdir "/sys/fs/cgroup/memory/trainyard-try-$$"
	track=proctrack/cgroup task=task/cgroup ram=yes
fi
accounting=AccountingStorageType=accounting_storage/none
if [ -n "${ACCOUNTING:-}" ]; then
	for program in slurmdbd mariadbd mariadb-install-db; do
		command -v "$program" >/dev/null || { echo "up.sh: there is no $program: apt-get install slurmdbd mariadb-server-core" >&2; exit 1; }
	done
	dbd=$((port + nodes + 2000))
	while (exec 3<>"/dev/tcp/127.0.0.1/$dbd") 2>/dev/null; do dbd=$((dbd + 1)); done
	accounting="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$dbd
AccountingStoragePass=$dir/run/munge.sock
AccountingStorageEnforce=associations,limits,qos"
fi
host=$(hostname -s) last=$((nodes - 1)) node=n$port- # the names of its cgroups, so no two Slurms may share them
cat >"$conf" <<END
ClusterName=trainyard$port
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=$track
TaskPlugin=$task
MpiDefault=none
SwitchType=switch/none
GresTypes=gpu
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1024
MaxJobCount=100000
MinJobAge=${MIN_JOB_AGE:-300}
KillWait=3
$accounting
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobcomp
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=${SCHEDULER:-batch_sched_delay=0}
EpilogMsgTime=0
END
for i in $(seq 0 "$last"); do
	mkdir -p "$dir/spool/$node$i"
	echo "NodeName=$node$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1 + i)) CPUs=$cpus RealMemory=$memory Gres=gpu:2 State=UNKNOWN"
done >>"$conf"
cat >>"$conf" <<END
PartitionName=main Nodes=$node[0-$last] Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=low Nodes=$node[0-$last] MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=down Nodes=${node}0 MaxTime=INFINITE State=DOWN
END
printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=%s\nConstrainSwapSpace=no\n' "$ram" >"$dir/etc/cgroup.conf"
for gpu in gpu0 gpu1; do [ -e "$dir/run/$gpu" ] || mknod "$dir/run/$gpu" c 1 3; done # Slurm wants a device; what it is it does not ask
echo "Name=gpu File=$dir/run/gpu[0-1]" >"$dir/etc/gres.conf"
[ -f "$dir/etc/munge.key" ] || head -c 128 /dev/urandom >"$dir/etc/munge.key"
chmod 600 "$dir/etc/munge.key"

export SLURM_CONF=$conf
: >"$dir/run/pids"
run() { # NAME COMMAND...: in the background, for down.sh to end
	local name=$1
	shift
	setsid "$@" >"$dir/log/$name.out" 2>&1 </dev/null &
	echo "$! $name" >>"$dir/run/pids"
}
await() { # WHAT COMMAND...: until it succeeds
	local what=$1
	shift
	local until=$((SECONDS + 60))
	while [ "$SECONDS" -lt "$until" ]; do
		if "$@"; then return; fi
		sleep 0.1
	done
	echo "up.sh: no $what after 60 s; see $dir/log" >&2
	exit 1
}
ready() { [ "$(timeout 2 sinfo -h -N -p main -t idle -o %N 2>/dev/null | wc -l)" = "$nodes" ]; }

# accounts starts a database and slurmdbd, and tells it who may do what.
accounts() {
	local sql=$dir/run/sql.sock
	mkdir -p "$dir/db"
	mariadb-install-db --no-defaults --user=root --datadir="$dir/db" --auth-root-authentication-method=socket --skip-test-db >"$dir/log/install-db.out" 2>&1
	run mariadbd mariadbd --no-defaults --user=root --datadir="$dir/db" --socket="$sql" --skip-networking --innodb-buffer-pool-size=32M --pid-file="$dir/run/mariadbd.pid"
	await "socket of mariadbd" test -S "$sql"
	cat >"$dir/etc/slurmdbd.conf" <<END
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=$dbd
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
PidFile=$dir/run/slurmdbd.pid
LogFile=$dir/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageUser=root
StorageLoc=slurm
END
	chmod 600 "$dir/etc/slurmdbd.conf"
	# Slurm reaches a database by TCP, or by the socket that its client library knows of, which may be named in the environment.
	MYSQL_UNIX_PORT=$sql SLURM_CONF=$dir/etc/slurmdbd.conf run slurmdbd slurmdbd -D
	await "answer of slurmdbd" bash -c "sacctmgr -n list cluster >/dev/null 2>&1"
	sacctmgr -i add cluster "trainyard$port"
	sacctmgr -i add qos single set MaxJobsPerUser=1
	sacctmgr -i add account team,idle cluster="trainyard$port"
	sacctmgr -i add user root account=team,idle defaultaccount=team
	sacctmgr -i modify account team set qos=normal,single defaultqos=normal
	sacctmgr -i modify account idle set qos=normal defaultqos=normal
} >&2

run munged munged -F -f --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" \
	--log-file="$dir/log/munged.log" --seed-file="$dir/run/munged.seed" --num-threads=4
await "socket of munged" test -S "$dir/run/munge.sock"
if [ -n "${ACCOUNTING:-}" ]; then accounts; fi
run slurmctld slurmctld -D -f "$conf"
for i in $(seq 0 "$last"); do run "$node$i" slurmd -D -N "$node$i" -f "$conf"; done
await "$nodes idle nodes" ready
exports=("export TRAINYARD_TEST_SLURM_CONF=$conf")

if command -v sshd >/dev/null; then
	mkdir -p /run/sshd # where sshd wants to be able to hide
	mkdir -p "$dir/etc/login" "$dir/login" # a home of its own: what shells do in the user's may take its time, or not bear to be killed
	for key in host user; do
		[ -f "$dir/etc/login/$key" ] || ssh-keygen -q -t ed25519 -N '' -C '' -f "$dir/etc/login/$key"
	done
	cp "$dir/etc/login/user.pub" "$dir/etc/login/authorized_keys"
	login=$((port + nodes + 1))
	until ! (exec 3<>"/dev/tcp/127.0.0.1/$login") 2>/dev/null; do login=$((login + 1)); done
	cat >"$dir/etc/sshd_config" <<END
ListenAddress 127.0.0.1:$login
HostKey $dir/etc/login/host
AuthorizedKeysFile $dir/etc/login/authorized_keys
PidFile $dir/run/sshd.pid
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
SetEnv HOME=$dir/login
Subsystem sftp internal-sftp
END
	run sshd "$(command -v sshd)" -D -e -f "$dir/etc/sshd_config"
	await "sshd" bash -c "exec 3<>/dev/tcp/127.0.0.1/$login" 2>/dev/null
	exports+=("export TRAINYARD_TEST_SLURM_LOGIN='{\"login\": {\"address\": \"127.0.0.1\", \"port\": $login, \"user\": \"$(id -un)\", \"privateKeyFile\": \"$dir/etc/login/user\"}}'")
else
	echo "up.sh: there is no sshd, so no login node: apt-get install openssh-server" >&2
fi
if command -v slurmrestd >/dev/null; then
	rm -f "$dir/run/rest.sock" "$dir/run/locked.sock"
	export SLURMRESTD_SECURITY=disable_user_check # root is the user of these jobs
	run slurmrestd slurmrestd -f "$conf" -a rest_auth/local -s openapi/v0.0.38 "unix:$dir/run/rest.sock"
	run slurmrestd-locked slurmrestd -f "$conf" -a rest_auth/jwt -s openapi/v0.0.38 "unix:$dir/run/locked.sock" # lets nobody in: Debian's Slurm has no auth/jwt
	await "socket of slurmrestd" test -S "$dir/run/rest.sock" -a -S "$dir/run/locked.sock"
	exports+=("export TRAINYARD_TEST_SLURM_REST='{\"rest\": {\"url\": \"unix:$dir/run/rest.sock\"}}'")
else
	echo "up.sh: there is no slurmrestd: apt-get install slurmrestd" >&2
fi
printf '%s\n' "${exports[@]}"
