#!/usr/bin/env bash
# Makes the images that the cluster runs, since no registry is asked, and the package index that its pods reach: usage images.sh [FOLDER].
#   pause.tar     trainyard.test/pause:1   a static program that waits
#   base-pip.tar  trainyard.test/base:1    Debian with Python, and with pip set up for the index as a company's image is; about 2 minutes once
#   index/        what up.sh serves        the packages of the suite's conda file, and what makes an environment of them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}/kube-images}
mkdir -p "$out"
exec 9>"$out/lock"
flock 9
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -e "$out/pause.tar" ]; then
	CGO_ENABLED=0 GOFLAGS= GOWORK=off go build -trimpath -ldflags='-s -w' -o "$work/root/pause" "$here/pause/main.go"
	tar -C "$work/root" --owner=0 --group=0 -cf "$work/pause.tar" .
	"$here/../pack.sh" trainyard.test/pause:1 "$work/pause.tar" "$out/pause.tar"
fi
if [ ! -e "$out/base-pip.tar" ]; then
	printf '[global]\nindex-url = http://198.18.0.1:8098/simple/\ntrusted-host = 198.18.0.1\n' >"$work/pip.conf"
	nice -n 10 mmdebstrap --quiet --variant=minbase --include=python3,python3-pip,python3-venv --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="copy-in $work/pip.conf /etc" bookworm "$work/base.tar"
	"$here/../pack.sh" trainyard.test/base:1 "$work/base.tar" "$out/base-pip.tar"
fi
uv=$(sed -n 's/^const UVVersion = "\(.*\)"$/\1/p' "$here/../../../internal/stage/build.go")
# Those of the image's Python, whatever this machine's is.
wanted=(six==1.16.0 pip 'setuptools<81' wheel "uv==$uv" scikit-learn==1.5.2 joblib==1.4.2 azureml-inference-server-http mlflow-skinny==3.6.0 pandas azureml-ai-monitoring)
if [ "$(cat "$out/index/wanted" 2>/dev/null)" != "${wanted[*]}" ]; then
	python3 -m pip download --quiet --only-binary :all: --python-version 3.11 --dest "$work/wheels" "${wanted[@]}"
	mkdir "$work/index"
	for wheel in "$work"/wheels/*.whl; do
		name=${wheel##*/}
		name=$(tr '[:upper:]_' '[:lower:]-' <<<"${name%%-*}")
		mkdir -p "$work/index/simple/$name"
		cp "$wheel" "$work/index/simple/$name/"
	done
	echo "${wanted[*]}" >"$work/index/wanted"
	rm -rf "$out/index"
	mv "$work/index" "$out/index"
fi
