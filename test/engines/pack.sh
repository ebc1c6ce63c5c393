#!/usr/bin/env bash
# Makes an image of one layer, as "docker save" writes it: usage pack.sh NAME:TAG LAYER.tar OUT.tar [COMMAND].
set -euo pipefail
name=$1 layer=$(realpath "$2") out=$3 command=${4:-/pause}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
ln -s "$layer" "$dir/layer.tar"
printf '{"architecture":"%s","os":"linux","config":{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"Cmd":["%s"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
	"$(go env GOARCH)" "$command" "$(sha256sum "$layer" | cut -d' ' -f1)" >"$dir/config.json"
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" >"$dir/manifest.json"
tar -C "$dir" --dereference -cf "$out.new" manifest.json config.json layer.tar
mv "$out.new" "$out"
