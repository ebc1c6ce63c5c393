#!/bin/sh
# Runs main_job.py, pipeline.py, batch_endpoint.py and online_endpoint.py with the official Python SDK against a server of its own. Usage: sh test/sdk/run.sh path/to/trainyard
set -eu
bin=$(CDPATH= cd -- "$(dirname -- "$1")" && pwd)/$(basename -- "$1")
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/trainyard-test"
venv="$cache/sdk-$(cksum <"$here/requirements.txt" | cut -d' ' -f1)"
if [ ! -e "$venv/.complete" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
	touch "$venv/.complete"
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-sdk.XXXXXX")
export TRAINYARD_CONFIG_DIR="$dir/config" TRAINYARD="$bin" AZUREML_RUN_POLLING_INTERVAL_MIN=1
server=
stop() {
	status=$?
	if [ -n "$server" ]; then kill -TERM "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
	[ "$status" -eq 0 ] || tail -n 40 "$dir/server.log" >&2
	rm -rf "$dir"
	exit "$status"
}
trap stop EXIT
"$bin" server --data "$dir/data" --listen 127.0.0.1:0 >"$dir/server.out" 2>"$dir/server.log" &
server=$!
tries=0
until [ -s "$dir/server.out" ]; do
	tries=$((tries + 1))
	[ "$tries" -le 200 ] && kill -0 "$server" 2>/dev/null || { echo "the server did not start" >&2; exit 1; }
	sleep 0.1
done
eval "$(python3 - "$TRAINYARD_CONFIG_DIR" <<'PY'
import json, os, shlex, sys, urllib.parse
d = sys.argv[1]
p = json.load(open(os.path.join(d, "profile.json")))
port = urllib.parse.urlparse(p["url"]).port
ca = os.path.join(d, "ca.pem")
open(ca, "w").write(p["ca"])
base = f"https://localhost:{port}"
for k, v in {"ARM_CLOUD_METADATA_URL": base + "/metadata/endpoints?api-version=2019-05-01", "REQUESTS_CA_BUNDLE": ca, "SSL_CERT_FILE": ca,
             "IDENTITY_ENDPOINT": base + "/msi/token", "IDENTITY_HEADER": p["token"]}.items():
    print(f"export {k}={shlex.quote(v)}")
PY
)"
"$venv/bin/python" "$here/main_job.py"
"$venv/bin/python" "$here/pipeline.py"
"$venv/bin/python" "$here/batch_endpoint.py"
"$venv/bin/python" "$here/online_endpoint.py"
