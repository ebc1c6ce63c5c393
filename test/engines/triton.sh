#!/usr/bin/env bash
# Makes an image of Debian with Python, numpy and NVIDIA's Triton Inference Server, laid out as in NVIDIA's own image (/opt/tritonserver, and
# tritonserver in the PATH), and puts it into the engines that are up: those that TRAINYARD_TEST_DOCKER_HOST and TRAINYARD_TEST_KUBECONFIG lead
# to. The server is the one that PyPI's nvidia-pytriton (Apache-2.0) carries: it runs without a GPU, and of Triton's backends it has Python's
# alone. Needs mmdebstrap and pip.
#   eval "$(test/engines/triton.sh)"
# It takes about a minute to make and 0.4 GB; it is kept in TRAINYARD_ENGINES_CACHE (~/.cache/trainyard-engines).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}
image=trainyard.test/tritonserver:1 tar=$cache/triton-bookworm-1.tar
source "$here/image.sh"

make_image() {
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	python3 -m pip install --quiet --no-warn-conflicts --root-user-action ignore --only-binary :all: --no-deps --python-version 3.11 --target "$work/packages" nvidia-pytriton==0.7.0
	# The programs find their libraries three and four folders up: with the server in /opt/tritonserver that is the root.
	server=$work/root/opt/tritonserver
	mkdir -p "$work/root/opt" "$work/root/usr/local/bin"
	mv "$work/packages/pytriton/tritonserver" "$server"
	mv "$work/packages/nvidia_pytriton.libs" "$work/root/nvidia_pytriton.libs"
	mv "$server/python_backend_stubs/3.11/triton_python_backend_stub" "$server/backends/python/"
	rm -r "$server/python_backend_stubs" "$work"/root/nvidia_pytriton.libs/libpython3-* # of other versions of Python
	chmod 755 "$server/bin/tritonserver" "$server/backends/python/triton_python_backend_stub"
	ln -s /opt/tritonserver/bin/tritonserver "$work/root/usr/local/bin/tritonserver"
	nice -n 10 mmdebstrap --quiet --variant=minbase --include=python3,python3-numpy,libpython3.11 --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook="sync-in $work/root /" bookworm "$work/layer.tar" >&2
	"$here/pack.sh" "$image" "$work/layer.tar" "$tar" /bin/bash
}

bring "$image" "$tar" TRAINYARD_TEST_TRITON_IMAGE
