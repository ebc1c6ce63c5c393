#!/bin/sh
# Runs client.py with the real MLflow, 2.x and 3.x, against a server of its own. Usage: sh test/mlflow/run.sh path/to/trainyard [2|3]
set -eu
bin=$(CDPATH= cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard-test"
for major in ${2:-2 3}; do
	venv="$cache/mlflow$major-$(cksum <"$here/requirements-$major.txt" | cut -d' ' -f1)"
	if [ ! -e "$venv/.complete" ]; then
		rm -rf "$venv"
		python3 -m venv "$venv"
		"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-$major.txt"
		touch "$venv/.complete"
	fi
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-mlflow.XXXXXX")
export TRAINYARD_CONFIG_DIR="$dir/config"
server=
stop() {
	status=$?
	if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
	[ "$status" -eq 0 ] || tail -n 40 "$dir/server.log" >&2
	rm -rf "$dir"
	exit "$status"
}
trap stop EXIT
start() { # at which address
	: >"$dir/server.out"
	"$bin" server --data "$dir/data" --listen "$1" >"$dir/server.out" 2>>"$dir/server.log" &
	server=$!
	tries=0
	until [ -s "$dir/server.out" ]; do
		tries=$((tries + 1))
		[ "$tries" -le 200 ] && kill -0 "$server" 2>/dev/null || { echo "the server did not start" >&2; exit 1; }
		sleep 0.1
	done
}
client() { # work or after
	SSL_CERT_FILE="$MLFLOW_TRACKING_SERVER_CERT_PATH" "$venv/bin/python" -W ignore "$here/client.py" "$1" "$major" >"$dir/client.log" 2>&1 || { cat "$dir/client.log" >&2; exit 1; }
	grep " passed$" "$dir/client.log"
}
start 127.0.0.1:0
eval "$("$bin" workspace mlflow-env)" # as the README says
at=${MLFLOW_TRACKING_URI#*://}
at=${at%%/*}
export TRAINYARD="$bin" MLFLOW_HTTP_REQUEST_MAX_RETRIES=2 MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT=true MLFLOW_DISABLE_TELEMETRY=true
for major in ${2:-2 3}; do
	venv="$cache/mlflow$major-$(cksum <"$here/requirements-$major.txt" | cut -d' ' -f1)"
	client work
done
# What was acknowledged is there after the server was killed.
kill -KILL "$server"
wait "$server" 2>/dev/null || true
start "$at"
for major in ${2:-2 3}; do
	venv="$cache/mlflow$major-$(cksum <"$here/requirements-$major.txt" | cut -d' ' -f1)"
	client after
done
echo "passed"
