#!/usr/bin/env bash
# Deploys the endpoint examples of Azure's own examples' repository that endpoints.txt names, and asks them for predictions over HTTP, against
# a server of its own. What an example's deploy script does around the deployment (registers a model, sets a field, puts in a name) is done
# here too; the files themselves are used as they are. Writes a table of how each went.
#   TRAINYARD_EXAMPLES=path/to/azureml-examples test/examples/run.sh path/to/trainyard [TABLE.md] [words that the paths must contain]
# With TRAINYARD_TEST_KUBECONFIG, the cluster of test/engines/kube/up.sh is attached for the examples that want one.
# The exit status is 1 if an example failed that was not refused with a sentence that says what this build has not.
set -euo pipefail
bin=$(cd "$(dirname "${1:?usage: run.sh path/to/trainyard [TABLE.md] [words]}")" && pwd)/$(basename "$1")
table=${2:-/dev/stdout}
only=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "${TRAINYARD_EXAMPLES:-}/cli/endpoints" ]; then
	echo "run.sh: set TRAINYARD_EXAMPLES to a checkout of the examples: git clone --depth 1 https://github.com/Azure/azureml-examples" >&2
	exit 2
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-examples.XXXXXX")
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard-test/examples" # environments that were built are there the next time
mkdir -p "$cache" "$dir/data"
ln -s "$cache" "$dir/data/cache"
export TRAINYARD_CONFIG_DIR="$dir/config" TRAINYARD_URL= TRAINYARD_TOKEN= NO_COLOR=1
server=
stop() {
	status=$?
	if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
	for _ in 1 2 3; do # agents and what they run outlive a server
		for process in /proc/[0-9]*; do
			if [ "${process#/proc/}" != "$$" ] && grep -qaF "$dir/data" "$process/cmdline"; then kill -KILL "${process#/proc/}" || true; fi
		done 2>"$dir/stopped"
	done
	while read -r wheel; do rm -f "$wheel"; done <"$dir/wheels"
	rm -rf "$dir"
	exit "$status"
}
touch "$dir/wheels"
trap stop EXIT
listen=127.0.0.1:0
if [ -n "${TRAINYARD_TEST_KUBECONFIG:-}" ]; then
	listen=0.0.0.0:$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
fi
"$bin" server --data "$dir/data" --listen "$listen" >"$dir/server.out" 2>"$dir/server.log" &
server=$!
for _ in $(seq 200); do
	[ ! -s "$dir/server.out" ] || break
	kill -0 "$server" 2>/dev/null || { cat "$dir/server.log" >&2; exit 1; }
	sleep 0.1
done
mkdir "$dir/cli"
cp -r "$TRAINYARD_EXAMPLES"/cli/{endpoints,monitoring} "$dir/cli/"
az() { "$bin" "$@" -o none; } # what the scripts call "az ml"

# fill FILE puts in {{NAMES}}, as the scripts' change_vars does.
fill() {
	local name
	for name in ENDPOINT_NAME MODEL_VERSION ACR_NAME; do sed -i "s/{{$name}}/${!name}/g" "$@"; done
}

# score FILE or CURL'S WORDS: asks the endpoint over HTTP, as the scripts do with curl. Says what came back and fails unless it is 200.
score() {
	local url key code
	url=$("$bin" online-endpoint show -n "$ENDPOINT_NAME" --query scoring_uri -o tsv)
	key=$("$bin" online-endpoint get-credentials -n "$ENDPOINT_NAME" --query primaryKey -o tsv)
	[ $# -gt 1 ] || set -- -H "Content-Type: application/json" -d "@$1"
	code=$(curl -sSk -o "$dir/answer" -w '%{http_code}' -H "Authorization: Bearer $key" "$@" "$url")
	[ "$code" = 200 ] || { echo "error: $code $(head -c 300 "$dir/answer")" >&2; return 1; }
	did="${did:+$did, }$code"
}

online() { # FILE REQUEST [--set …]: an online deployment, and a request to it
	local file=$1 request=$2
	shift 2
	fill "$file"
	"$bin" online-endpoint show -n "$ENDPOINT_NAME" >"$dir/shown" 2>&1 || az online-endpoint create -n "$ENDPOINT_NAME"
	az online-deployment create -f "$file" --endpoint-name "$ENDPOINT_NAME" --all-traffic "$@"
	if [ "$request" != none ]; then score "$request"; fi
}

# packages FILE: what a conda file's pods install, into the index that up.sh serves them, until the end of this run.
packages() {
	local index=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}/kube-images/index/simple wheel name
	sed -n '/^dependencies:/,$s/^ *- *//p' "$1" | grep -v -e ':$' -e '^python' | sed -E 's/^([A-Za-z0-9_-]+)=([0-9])/\1==\2/' >"$dir/wanted"
	python3 -m pip download --quiet --only-binary :all: --python-version 3.11 --dest "$dir/wheelhouse" -r "$dir/wanted"
	for wheel in "$dir"/wheelhouse/*.whl; do
		name=${wheel##*/}
		name=$index/$(tr '[:upper:]_' '[:lower:]-' <<<"${name%%-*}")
		[ ! -e "$name/${wheel##*/}" ] || continue
		mkdir -p "$name"
		cp "$wheel" "$name/"
		echo "$name/${wheel##*/}" >>"$dir/wheels"
	done
}

kubernetes() { # FILE REQUEST CONDA: an online deployment on the cluster that up.sh made, if it is there
	az online-endpoint create -n "$ENDPOINT_NAME" -f "${1%/*}/kubernetes-endpoint.yml"
	if [ "$listen" = 127.0.0.1:0 ]; then
		online "$1" "$2"
		return
	fi
	changed="environment.image: Debian with Python, as the cluster has no other"
	packages "$3"
	online "$1" "$2" --set environment.image=trainyard.test/base:1
}

completed() { # JOB
	local step
	"$bin" job stream -n "$1" >"$dir/stream" 2>&1 && return
	tail -n 40 "$dir/stream" >&2
	for step in $("$bin" job list --parent-job-name "$1" --query "[?status=='Failed'].name" -o tsv); do "$bin" job logs -n "$step" | tail -n 40 >&2 || true; done
	return 1
}

batch() { # FILE INPUT [--file INPUTS] [--set …]: a batch deployment, and a job of it
	local file=$1 input=$2 inputs=
	shift 2
	if [ "${1:-}" = --file ]; then
		inputs=$2
		shift 2
	fi
	az batch-endpoint create -n "$ENDPOINT_NAME"
	az batch-deployment create -f "$file" --endpoint-name "$ENDPOINT_NAME" --set-default "$@"
	job=$("$bin" batch-endpoint invoke -n "$ENDPOINT_NAME" ${input:+--input "$input"} ${inputs:+--file "$inputs"} --query name -o tsv)
	completed "$job"
	did="job completed"
}

pipeline() { # FILE [--set …]: a pipeline job
	cluster
	job=$("$bin" job create -f "$@" --query name -o tsv)
	completed "$job"
	did="job completed"
}

outputs() { # NAMES: outputs of the last job, none of them empty
	local name
	for name; do
		az job download --name "$job" --output-name "$name" --download-path "$dir/got/$job"
		[ -n "$(find "$dir/got/$job/named-outputs/$name" -type f -size +0c)" ] || { echo "error: nothing in output $name" >&2; return 1; }
		did="$did, $name"
	done
}

digits() { # FOLDER: pictures such as the ones that the scripts fetch from the web
	python3 - "$1" <<'PY'
import os, struct, sys, zlib
os.makedirs(sys.argv[1])
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for n in range(25):
    rows = b"".join(b"\0" + bytes(255 if 6 <= x <= 6 + n % 10 and 6 <= y <= 20 else 0 for x in range(28)) for y in range(28))
    with open(os.path.join(sys.argv[1], f"{n}.png"), "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
PY
}

. "$here/recipes.sh"
if [ "$listen" != 127.0.0.1:0 ]; then
	az compute attach -n inferencecompute --type kubernetes --kubeconfig "$TRAINYARD_TEST_KUBECONFIG" --server-url "https://198.18.0.1:${listen#*:}"
fi

# why makes one line of what a command said: its error, and the last exception of a log that it showed.
why() {
	local error log
	error=$(sed -n 's/^error: //p' "$1" | tail -n 1 | sed -E 's/-[0-9a-f]{8}([^0-9a-f]|$)/\1/g')
	log=$(grep -oE '^(  \| )?[A-Za-z_.]*(Error|Exception): .*' "$1" | grep -v azureml_inference_server_http | tail -n 1 | sed 's/^  | //' || true)
	case "$error" in *"$log"*) log= ;; esac
	printf '%s%s' "${error:-$(tail -n 1 "$1")}" "${log:+ ($log)}" | sed -e "s|$dir/||g" -e 's/|/\\|/g'
}

cd "$dir/cli/.."
{
	echo "# Azure's endpoint examples"
	echo
	echo "Made by test/examples/run.sh out of [Azure's examples](https://github.com/Azure/azureml-examples): each file of test/examples/endpoints.txt deployed on one"
	echo "computer without a container engine (those for Kubernetes: on a cluster), and asked for predictions over HTTP. *changed* is what was done to an example beyond what its own deploy script does."
	echo
	echo "| example | result | changed |"
	echo "|---|---|---|"
} >"$dir/table.md"
failed=0 good=0 refused=0 number=0
while read -r example; do
	[ -n "$example" ] && [[ "$example" == *"$only"* ]] || continue
	number=$((number + 1))
	ENDPOINT_NAME=example-$number MODEL_VERSION=$number ACR_NAME=registry did="" changed="" start=$SECONDS
	set +e
	(
		set -e
		trap 'printf "%s" "$did" >"$dir/did"; printf "%s" "$changed" >"$dir/changed"' EXIT
		recipe "$dir/$example"
	) >"$dir/said" 2>&1
	status=$?
	set -e
	changed=$(cat "$dir/changed")
	"$bin" online-endpoint delete -n "$ENDPOINT_NAME" --yes >"$dir/shown" 2>&1 || "$bin" batch-endpoint delete -n "$ENDPOINT_NAME" --yes >"$dir/shown" 2>&1 || true
	if [ "$status" = 0 ]; then
		good=$((good + 1)) result=$(cat "$dir/did")
	elif grep -qE '^error: .*(this build|is a container with a server of its own|does not exist in workspace)' "$dir/said"; then
		refused=$((refused + 1)) result="refused: $(why "$dir/said")"
	else
		failed=$((failed + 1)) result="**failed**: $(why "$dir/said")"
		[ -z "${VERBOSE:-}" ] || cat "$dir/said" >&2
	fi
	echo "| ${example#cli/} | $result | $changed |" >>"$dir/table.md"
	printf '%4d s  %s: %s\n' $((SECONDS - start)) "${example#cli/}" "$result" >&2
done <"$here/endpoints.txt"
echo >>"$dir/table.md"
echo "$good of $number work, $refused are refused, $failed failed." >>"$dir/table.md"
cat "$dir/table.md" >"$table"
[ "$failed" = 0 ]
