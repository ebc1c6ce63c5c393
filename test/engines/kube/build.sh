#!/usr/bin/env bash
# Builds the Kubernetes programs that the tests run from their published Go modules: usage build.sh [FOLDER].
# About 20 CPU-minutes once; the folder is a cache, and what is in it already is not built again.
set -euo pipefail
version=v1.34.4 # the last minor whose kubelet runs on cgroup v1 by default
out=${1:-${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}/kube-${version#v}}
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet)
export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off

missing=()
for p in "${programs[@]}"; do [ -x "$out/$p" ] || missing+=("$p"); done
if [ "${#missing[@]}" -eq 0 ]; then exit 0; fi
mkdir -p "$out/src"
exec 9>"$out/lock"
flock 9 # two builds at once would do the work twice
cd "$out/src"

if [ ! -e go.sum ]; then
	mod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
	printf 'module trainyard-kube\n' >go.mod
	go mod edit -go="$(sed -n 's/^go \(.*\)/\1/p' "$mod")" -require="k8s.io/kubernetes@$version"
	# What Kubernetes keeps in ./staging is published beside it as v0.x.
	sed -n 's#^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging.*#\1#p;s#^[[:space:]]*\(k8s.io/[a-z0-9-]*\) v0\.0\.0$#\1#p' "$mod" | sort -u |
		while read -r m; do go mod edit -replace="$m=$m@v0.${version#v1.}"; done
	{
		printf '//go:build tools\n\npackage tools\n\nimport (\n'
		printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' "${programs[@]}"
		printf ')\n'
	} >tools.go
	go mod tidy
fi
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${version:3:2} -X $stamp.gitTreeState=clean"
for p in "${missing[@]}"; do
	[ -x "$out/$p" ] || { nice -n 15 go build -trimpath -ldflags "$flags" -o "$out/$p.new" "k8s.io/kubernetes/cmd/$p" && mv "$out/$p.new" "$out/$p"; }
done
