#!/usr/bin/env bash
# A Kubernetes of one node with real pods, in a network namespace of its own: usage up.sh FOLDER; down.sh FOLDER ends it.
# Needs root, and: apt-get install etcd-server containerd runc containernetworking-plugins iproute2 mmdebstrap openssl curl
# Afterwards FOLDER/kubeconfig reaches the API server at https://198.18.0.2:6443, pods reach this machine at 198.18.0.1, and the images
# trainyard.test/base:1 (Debian with Python) and trainyard.test/pause:1 are there. There is no DNS and no kube-proxy. A package index is at
# http://198.18.0.1:8098/simple/, and pip in the image is set up for it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
cache=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}
bin=$cache/kube-1.34.4 images=$cache/kube-images
ns=trainyard-kube node=198.18.0.2 host=198.18.0.1 pods=198.18.1.0/24
"$here/build.sh" "$bin"
"$here/images.sh" "$images"
# One cluster at a time: its daemons inherit this lock, so it is free once the last of them has ended, however that was.
exec 9>>/run/lock/trainyard-kube.lock
if ! flock -n 9; then
	echo "another cluster runs: waiting up to an hour for its end" >&2
	flock -w 3600 9 || { echo "another cluster still runs, or the daemons of one that nobody ended: down.sh FOLDER ends it" >&2; exit 1; }
fi
ip link del tykube 2>/dev/null || true # of a cluster that was killed
ip netns del "$ns" 2>/dev/null || true
mkdir -p "$dir"/{pki,etcd,log,run,kubelet,cni,containerd,containerd-state}
dir=$(cd "$dir" && pwd)
echo "$dir" >/run/lock/trainyard-kube.lock # whose the network namespace is
chmod 700 "$dir/etcd" "$dir/pki"
trap '[ $? -eq 0 ] || "$here/down.sh" "$dir"' EXIT

# start NAME COMMAND…: writes the command down, so that part.sh can stop the part and start it again, and starts it.
start() {
	local name=$1
	shift
	printf '%q ' nsenter --net="/run/netns/$ns" nice -n "${NICE:-0}" "$@" >"$dir/run/$name.command" # "ip netns exec" would hide the cgroups
	"$here/part.sh" "$dir" start "$name"
}

# until TRIES COMMAND…: again every tenth of a second until it succeeds.
until_() {
	local tries=$1 last
	shift
	last=("$@")
	for _ in $(seq "$tries"); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.1
	done
	echo "gave up: ${last[*]}; see $dir/log" >&2
	return 1
}

network() {
	ip netns add "$ns"
	ip link add tykube type veth peer name eth0 netns "$ns"
	ip addr add "$host/30" dev tykube
	ip link set tykube up
	nsenter --net="/run/netns/$ns" sh -ec "ip link set lo up; ip addr add $node/30 dev eth0; ip link set eth0 up
		ip route add default via $host; echo 1 >/proc/sys/net/ipv4/ip_forward"
	ip route replace "$pods" via "$node"
}

# credentials makes a token and a kubeconfig for every part; the API server makes its own certificate.
credentials() {
	[ -e "$dir/pki/sa.key" ] || openssl genrsa -out "$dir/pki/sa.key" 2048 2>/dev/null
	for user in admin manager scheduler node; do
		printf '%s,%s,%s,"system:masters"\n' "$(openssl rand -hex 16)" "$user" "$user"
	done >"$dir/pki/tokens.csv"
}

kubeconfig() {
	local token
	token=$(awk -F, -v n="$1" '$2==n{print $1}' "$dir/pki/tokens.csv")
	cat <<K
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://$node:6443", certificate-authority-data: $(base64 -w0 "$dir/pki/apiserver.crt")}}]
users: [{name: $1, user: {token: $token}}]
contexts: [{name: test, context: {cluster: test, user: $1}}]
current-context: test
K
}

api() {
	curl -sS --fail --cacert "$dir/pki/apiserver.crt" -H "Authorization: Bearer $(awk -F, '$2=="admin"{print $1}' "$dir/pki/tokens.csv")" \
		"https://$node:6443$1"
}

control_plane() {
	cat >"$dir/audit.yaml" <<K
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:rights"]} # what the account of the manifest makes use of
  - {level: None}
K
	start etcd etcd --name e --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 \
		--listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 --initial-cluster e=http://127.0.0.1:12380
	start apiserver "$bin/kube-apiserver" --etcd-servers=http://127.0.0.1:12379 --bind-address=0.0.0.0 --advertise-address="$node" --secure-port=6443 \
		--cert-dir="$dir/pki" --service-cluster-ip-range=198.51.100.0/24 --service-account-issuer=https://kubernetes.test \
		--service-account-signing-key-file="$dir/pki/sa.key" --service-account-key-file="$dir/pki/sa.key" --token-auth-file="$dir/pki/tokens.csv" \
		--authorization-mode=RBAC --audit-policy-file="$dir/audit.yaml" --audit-log-path="$dir/log/audit.log" --kubelet-preferred-address-types=InternalIP --allow-privileged=true --profiling=false
	until_ 300 test -s "$dir/pki/apiserver.crt"
	for user in manager scheduler node; do kubeconfig "$user" >"$dir/pki/$user.kubeconfig"; done
	kubeconfig admin >"$dir/kubeconfig"
	chmod 600 "$dir/kubeconfig" "$dir"/pki/*
	until_ 600 api /readyz
	start manager "$bin/kube-controller-manager" --kubeconfig="$dir/pki/manager.kubeconfig" --leader-elect=false \
		--service-account-private-key-file="$dir/pki/sa.key" --root-ca-file="$dir/pki/apiserver.crt"
	start scheduler "$bin/kube-scheduler" --kubeconfig="$dir/pki/scheduler.kubeconfig" --leader-elect=false
}

runtime() {
	cat >"$dir/containerd.toml" <<K
version = 2
root = "$dir/containerd"
state = "$dir/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "$dir/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "trainyard.test/pause:1"
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
K
	cat >"$dir/cni/10-test.conflist" <<K
{"cniVersion": "0.4.0", "name": "test", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "$dir/cni/leases", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
K
	start containerd containerd --config "$dir/containerd.toml"
	until_ 200 ctr -a "$dir/run/containerd.sock" version
	for image in pause base-pip; do
		ctr -a "$dir/run/containerd.sock" -n k8s.io images import "$images/$image.tar" >/dev/null
	done
}

kubelet() {
	cat >"$dir/kubelet.yaml" <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$dir/run/containerd.sock
failSwapOn: false
staticPodPath: ""
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
maxPods: 110
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
podLogsDir: $dir/kubelet/logs
K
	start kubelet "$bin/kubelet" --config="$dir/kubelet.yaml" --kubeconfig="$dir/pki/node.kubeconfig" --root-dir="$dir/kubelet" \
		--hostname-override=test-node --node-ip="$node" --cert-dir="$dir/pki/kubelet" --v=2
	until_ 400 sh -c "curl -sS --fail --cacert '$dir/pki/apiserver.crt' -H 'Authorization: Bearer $(awk -F, '$2=="admin"{print $1}' "$dir/pki/tokens.csv")' \
		https://$node:6443/api/v1/nodes/test-node | tr -d ' \n' | grep -q '\"reason\":\"KubeletReady\"'"
}

# index serves the packages to pods, from this side of their network.
index() {
	printf '%q ' python3 -m http.server --bind "$host" --directory "$images/index" 8098 >"$dir/run/index.command"
	"$here/part.sh" "$dir" start index
	until_ 100 curl -sS --fail "http://$host:8098/simple/"
}

network
index
credentials
control_plane
runtime
kubelet
until_ 300 api /api/v1/namespaces/default/serviceaccounts/default
echo "export TRAINYARD_TEST_KUBECONFIG=$dir/kubeconfig"
