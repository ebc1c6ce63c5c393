#!/bin/sh
# The main job, end to end: one job file on this computer, then on a cluster that starts at zero nodes and goes back to zero.
# Usage: sh examples/demo.sh path/to/trainyard
set -eu
trainyard=$(CDPATH= cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-demo.XXXXXX")
export TRAINYARD_CONFIG_DIR="$dir/config"
unset TRAINYARD_URL TRAINYARD_TOKEN || true

title() { printf '\n== %s\n' "$*"; }
run() { printf '$ trainyard'; printf ' %s' "$@"; printf '\n'; "$trainyard" "$@"; }
nodes() { "$trainyard" compute list-nodes --name cpu-cluster --query 'length(@)' -o tsv; }

server=
stop() {
	status=$?
	if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
	if [ "$status" -ne 0 ]; then echo "demo failed; the server's log:" >&2; tail -n 40 "$dir/server.log" >&2; fi
	rm -rf "$dir"
	exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

title "A server with its defaults, in a fresh folder"
export TRAINYARD_CONTAINERS=off # the job's image is large: its conda_file is built without it
"$trainyard" server --data "$dir/data" --listen 127.0.0.1:0 >"$dir/server.out" 2>"$dir/server.log" &
server=$!
tries=0
until [ -s "$dir/server.out" ]; do
	tries=$((tries + 1))
	[ "$tries" -le 200 ] && kill -0 "$server" 2>/dev/null || { echo "the server did not start" >&2; exit 1; }
	sleep 0.1
done
cat "$dir/server.out"
run compute list -o table

title "The job, on this computer"
run job create --file "$here/train/job.yml" --name wine-here --stream

title "A cluster of nodes that do not exist yet"
run compute create --file "$here/train/cluster.yml" -o table
echo "nodes now: $(nodes)"
[ "$(nodes)" = 0 ]

title "The same file, not a byte changed, on the cluster"
"$trainyard" job create --file "$here/train/job.yml" --name wine-cluster --set compute=azureml:cpu-cluster -o none
most=0
while :; do
	n=$(nodes)
	[ "$n" -gt "$most" ] && { most=$n; run compute list-nodes --name cpu-cluster -o table; }
	case $("$trainyard" job show --name wine-cluster --query status -o tsv) in Completed | Failed | Canceled) break ;; esac
done
run job stream --name wine-cluster
[ "$("$trainyard" job show --name wine-cluster --query status -o tsv)" = Completed ]
[ "$most" -gt 0 ]

title "The model comes home"
run job download --name wine-cluster --all --download-path "$dir/wine-cluster"
(cd "$dir/wine-cluster" && find . -type f | sort)
test -s "$(find "$dir/wine-cluster" -name model.joblib)"

sh "$here/serve.sh" "$trainyard" wine-cluster

title "Back to zero"
tries=0
while [ "$(nodes)" != 0 ]; do
	tries=$((tries + 1))
	[ "$tries" -le 600 ] || { echo "the nodes did not go away" >&2; exit 1; }
	sleep 0.1
done
echo "nodes: 0 -> $most -> $(nodes)"
run job list -o table
