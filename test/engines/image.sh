# What the scripts that make an image for engines share; they read it with "source".

# bring IMAGE TAR VARIABLE makes TAR by make_image, unless it is there, loads it into the engines that are up (those that
# TRAINYARD_TEST_DOCKER_HOST and TRAINYARD_TEST_KUBECONFIG lead to), and prints what sets VARIABLE to the image's name. One at a time makes it.
bring() {
	local image=$1 tar=$2 containerd
	mkdir -p "$(dirname "$tar")"
	if [ ! -e "$tar" ]; then
		exec 8>"$tar.lock"
		flock 8
		[ -e "$tar" ] || make_image
		flock -u 8
	fi
	if [ -n "${TRAINYARD_TEST_DOCKER_HOST:-}" ]; then
		export DOCKER_HOST=$TRAINYARD_TEST_DOCKER_HOST
		docker image inspect "$image" >/dev/null 2>&1 || docker load --quiet --input "$tar" >&2
	fi
	if [ -n "${TRAINYARD_TEST_KUBECONFIG:-}" ]; then
		containerd=$(dirname "$TRAINYARD_TEST_KUBECONFIG")/run/containerd.sock
		ctr -a "$containerd" -n k8s.io images ls -q | grep -qx "$image" || ctr -a "$containerd" -n k8s.io images import "$tar" >&2
	fi
	echo "export $3=$image"
}
