#!/usr/bin/env bash
# Makes an image of Debian with Python, PyTorch (Debian's, for CPUs) and the Azure ML inference server (PyPI's), and puts it into the engines
# that are up: those that TRAINYARD_TEST_DOCKER_HOST and TRAINYARD_TEST_KUBECONFIG lead to. Needs mmdebstrap and pip.
#   eval "$(test/engines/torch.sh)"
# It takes about two minutes to make and 1.2 GB; it is kept in TRAINYARD_ENGINES_CACHE (~/.cache/trainyard-engines).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}
image=trainyard.test/torch:1 tar=$cache/torch-bookworm-1.tar
source "$here/image.sh"

make_image() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	# For the image's Python, whatever this machine's is.
	python3 -m pip install --quiet --no-warn-conflicts --root-user-action ignore --only-binary :all: --python-version 3.11 --target "$work/packages" azureml-inference-server-http
	nice -n 10 mmdebstrap --quiet --variant=minbase --include=python3,python3-torch --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/lib/*/dri/*' --dpkgopt='path-exclude=/usr/lib/*/libLLVM*' --dpkgopt='path-exclude=/usr/lib/*/torch/bin/test_*' \
		--customize-hook='mkdir -p "$1/usr/local/lib/python3.11/dist-packages"' \
		--customize-hook="sync-in $work/packages /usr/local/lib/python3.11/dist-packages" bookworm "$work/layer.tar" >&2
	"$here/pack.sh" "$image" "$work/layer.tar" "$tar" /bin/bash
}

bring "$image" "$tar" TRAINYARD_TEST_TORCH_IMAGE
