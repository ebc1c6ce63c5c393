#!/bin/sh
# The model of the demo's job, served: on this computer, as a managed endpoint, and on Kubernetes where a cluster is attached. The same files
# each time, and the same request to each; the answers must be equal.
# Usage: sh examples/serve.sh path/to/trainyard [JOB]
#   JOB is a job of examples/train/job.yml on the server that you use; without one, a server of its own is started and trains first.
#   KUBE_COMPUTE=NAME is an attached cluster, if not the first one that there is; KUBE_IMAGE=IMAGE what its pods run, where the deployment's
#   cannot be pulled. KUBECONFIG=FILE attaches that cluster to a server of its own.
set -eu
trainyard=$(CDPATH= cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
job=${2:-}
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-serve.XXXXXX")

title() { printf '\n== %s\n' "$*"; }
run() { printf '$ trainyard'; printf ' %s' "$@"; printf '\n'; "$trainyard" "$@"; }

server= endpoints=
stop() {
	status=$?
	for endpoint in $endpoints; do "$trainyard" online-endpoint delete --name "$endpoint" --yes >/dev/null 2>&1 || true; done # with their nodes
	if [ -n "$server" ]; then
		kill -TERM "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
		if [ "$status" -ne 0 ]; then echo "it failed; the server's log:" >&2; tail -n 40 "$dir/server.log" >&2; fi
	fi
	rm -rf "$dir"
	exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

if [ -z "$job" ]; then
	title "A server of its own, and the demo's training"
	export TRAINYARD_CONFIG_DIR="$dir/config" TRAINYARD_CONTAINERS=off # the images are large: their conda files are built without them
	unset TRAINYARD_URL TRAINYARD_TOKEN || true
	listen=127.0.0.1:0
	[ -z "${KUBECONFIG:-}" ] || listen=0.0.0.0:${KUBE_PORT:-7888} # pods must reach it
	"$trainyard" server --data "$dir/data" --listen "$listen" >"$dir/server.out" 2>"$dir/server.log" &
	server=$!
	tries=0
	until [ -s "$dir/server.out" ]; do
		tries=$((tries + 1))
		[ "$tries" -le 200 ] && kill -0 "$server" 2>/dev/null || { echo "the server did not start" >&2; exit 1; }
		sleep 0.1
	done
	if [ -n "${KUBECONFIG:-}" ]; then
		set -- --name k8s --type kubernetes --kubeconfig "$KUBECONFIG"
		[ -z "${KUBE_IMAGE:-}" ] || set -- "$@" --set "image=$KUBE_IMAGE"
		[ -z "${KUBE_SERVER_URL:-}" ] || set -- "$@" --server-url "$KUBE_SERVER_URL"
		run compute attach "$@" -o none
	fi
	job=wine
	run job create --file "$here/train/job.yml" --name "$job" -o none
	run job stream --name "$job"
fi

title "The model that the job made"
run model create --name wine --path "azureml://jobs/$job/outputs/model" -o table

# serve WHERE ARGUMENTS…: deploys the same files and keeps the answer.
serve() {
	where=$1 endpoint=wine-$1-$$
	shift
	title "The same files: $where"
	run online-endpoint create --file "$here/serve/endpoint.yml" --name "$endpoint" -o none
	endpoints="$endpoints $endpoint"
	run online-deployment create --file "$here/serve/deployment.yml" --endpoint-name "$endpoint" --all-traffic -o none "$@"
	run online-endpoint invoke --name "$endpoint" --request-file "$here/serve/request.json" | tee "$dir/$where.txt"
	echo
	grep -v '^\$ ' "$dir/$where.txt" >"$dir/$where.json"
}

serve local --local
serve managed
kube=${KUBE_COMPUTE:-$("$trainyard" compute list --query "[?type=='kubernetes'].name | [0]" -o tsv)}
if [ -n "$kube" ]; then
	set -- --set type=kubernetes --set "compute=azureml:$kube" --set instance_type=defaultinstancetype
	[ -z "${KUBE_IMAGE:-}" ] || set -- "$@" --set "environment.image=$KUBE_IMAGE"
	serve kubernetes "$@"
fi

title "The answers"
for answer in "$dir"/*.json; do
	cmp "$dir/local.json" "$answer"
	echo "$(basename "$answer" .json): the same"
done
[ -n "$kube" ] || echo "kubernetes: no cluster is attached (trainyard compute attach --help)"
