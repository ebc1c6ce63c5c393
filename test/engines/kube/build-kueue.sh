#!/usr/bin/env bash
# Builds Kueue from its published Go module, with the definitions of its kinds and of its webhooks beside it: usage build-kueue.sh [FOLDER].
# About 6 CPU-minutes once; the folder is a cache, and what is in it already is not built again.
set -euo pipefail
version=v0.15.2 # made with the libraries of Kubernetes 1.34
out=${1:-${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}/kueue-${version#v}}
export CGO_ENABLED=0 GOWORK=off

if [ -x "$out/kueue" ] && [ -d "$out/config" ]; then exit 0; fi
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # two builds at once would do the work twice
module=$(cd "$out" && go mod download -json "sigs.k8s.io/kueue@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p')
if [ ! -d "$out/config" ]; then
	rm -rf "$out/config.new"
	mkdir "$out/config.new"
	cp -r --no-preserve=mode "$module/config/components/crd" "$module/config/components/webhook" "$out/config.new/"
	mv "$out/config.new" "$out/config"
fi
[ -x "$out/kueue" ] || { # in its own folder, so with the libraries that it was released with
	cd "$module"
	nice -n 15 go build -mod=readonly -buildvcs=false -trimpath -ldflags="-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=$version" -o "$out/kueue.new" ./cmd/kueue
	mv "$out/kueue.new" "$out/kueue"
}
