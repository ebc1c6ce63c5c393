#!/usr/bin/env bash
# A Docker engine of its own on this machine, for tests: containerd, dockerd and a registry, everything below DIR, no bridge and no
# firewall rules, so nothing else on the machine notices. Needs root and the packages docker.io, docker-registry and mmdebstrap.
# The last lines printed are what the tests need:
#   eval "$(test/engines/docker/up.sh DIR)"      and afterwards      test/engines/docker/down.sh DIR
# The base image (Debian with Python) takes a minute to make; it is kept in TRAINYARD_ENGINES_CACHE (~/.cache/trainyard-engines).
# Run again with the engine up, it prints the same lines.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin"
dir=${1:?usage: up.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
cache=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}
image=trainyard-test/base:bookworm
for program in dockerd containerd docker docker-registry mmdebstrap; do
	command -v "$program" >/dev/null || { echo "up.sh: there is no $program: apt-get install docker.io docker-registry mmdebstrap" >&2; exit 1; }
done
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
[ "${#dir}" -le 60 ] || { echo "up.sh: $dir is too long a path for sockets below it; choose one of at most 60 characters" >&2; exit 1; }
mkdir -p "$dir"/{bin,etc,log,run,exec,data,containerd,registry}

base() { # the base image as a tar, made once
	local tar=$cache/docker-base-bookworm-1.tar
	mkdir -p "$cache"
	exec 8>"$cache/docker-base.lock"
	flock 8
	if [ ! -f "$tar" ]; then
		mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates --dpkgopt='path-exclude=/usr/share/doc/*' \
			--dpkgopt='path-exclude=/usr/share/man/*' bookworm "$tar.new.tar" >&2
		mv "$tar.new.tar" "$tar"
	fi
	flock -u 8
	echo "$tar"
}

free_port() {
	local port
	while port=$((10000 + RANDOM % 20000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
	echo "$port"
}

await() { # WHAT COMMAND...: until it succeeds
	local what=$1
	shift
	for _ in $(seq 300); do
		if "$@"; then return; fi
		sleep 0.1
	done
	echo "up.sh: no $what after 30 s; see $dir/log" >&2
	exit 1
}

# A hook that stands where NVIDIA's would: with it the engine takes requests for GPUs, and hands out numbers in place of devices.
printf '#!/bin/sh\nexit 0\n' >"$dir/bin/nvidia-container-runtime-hook"
chmod 755 "$dir/bin/nvidia-container-runtime-hook"

[ -f "$dir/etc/daemon.json" ] || echo "{}" >"$dir/etc/daemon.json"
[ -f "$dir/run/registry.port" ] || free_port >"$dir/run/registry.port"
port=$(cat "$dir/run/registry.port")
cat >"$dir/etc/registry.yml" <<END
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $dir/registry}}
http: {addr: "127.0.0.1:$port"}
END
cat >"$dir/etc/containerd.toml" <<END
version = 2
root = "$dir/containerd"
state = "$dir/exec/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$dir/run/containerd.sock"
END
engine="$here/engine.sh"
"$engine" start "$dir" containerd
"$engine" start "$dir" registry
"$engine" start "$dir" dockerd
export DOCKER_HOST=unix://$dir/run/docker.sock
await "Docker engine" docker version >/dev/null 2>&1
await "registry" bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" 2>/dev/null
if ! docker image inspect "$image" >/dev/null 2>&1; then
	docker import -c 'CMD ["/bin/bash"]' "$(base)" "$image" >&2
fi
echo "export TRAINYARD_TEST_DOCKER_HOST=$DOCKER_HOST"
echo "export TRAINYARD_TEST_DOCKER_IMAGE=$image"
echo "export TRAINYARD_TEST_DOCKER_REGISTRY=127.0.0.1:$port"
echo "export TRAINYARD_TEST_DOCKER_DIR=$dir"
