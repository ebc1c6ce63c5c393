#!/usr/bin/env bash
# Kueue, with its webhooks, in the cluster that up.sh FOLDER made, and a queue to wait in: usage kueue.sh FOLDER; down.sh FOLDER ends it as well.
# Afterwards namespace "queued" has the LocalQueue "team-a" with a quota of 20m of cpu in which a higher priority goes first, and there is the
# PriorityClass "urgent". It runs as a process, like the other parts; its webhooks are reached by a Service that is a name for the node, since
# there is no kube-proxy, and this script does what the kubelet does with the Secret of their certificate.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(cd "$1" && pwd)
bin=${TRAINYARD_ENGINES_CACHE:-$HOME/.cache/trainyard-engines}/kueue-0.15.2
ns=trainyard-kube node=198.18.0.2
"$here/build-kueue.sh" "$bin"
mkdir -p "$dir/kueue/certs"
token=$(awk -F, '$2=="admin"{print $1}' "$dir/pki/tokens.csv")

api() { # METHOD PATH [CURL-ARGUMENT…]
	local method=$1 path=$2
	shift 2
	curl -sS --fail-with-body --cacert "$dir/pki/apiserver.crt" -H "Authorization: Bearer $token" -X "$method" "$@" "https://$node:6443$path"
}

# apply PATH [AS]: makes the object of that path as standard input has it, or changes it to that; AS somebody else, it adds to it.
apply() {
	local said
	said=$(api PATCH "$1?fieldManager=${2:-test}&force=true" -H 'Content-Type: application/apply-patch+yaml' --data-binary @-) ||
		{ echo "apply $1: $said" >&2; return 1; }
}

until_() { # TRIES COMMAND…
	local tries=$1
	shift
	for _ in $(seq "$tries"); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.1
	done
	echo "gave up: $*; see $dir/log/kueue.log" >&2
	return 1
}

# named puts in what an installer of Kueue would: the names of the namespace and the Service.
named() { sed 's/namespace: system$/namespace: kueue-system/; s/name: webhook-service$/name: kueue-webhook-service/; s/^  name: \(mutating\|validating\)-/  name: kueue-\1-/' "$@"; }

definitions() {
	local crds=/apis/apiextensions.k8s.io/v1/customresourcedefinitions name file
	for file in "$bin"/config/crd/bases/*.yaml; do
		name=${file##*_}
		name=${name%.yaml}.kueue.x-k8s.io
		apply "$crds/$name" <"$file"
	done
	for file in "$bin"/config/crd/bases/*.yaml; do
		name=${file##*_}
		until_ 300 api GET "/apis/kueue.x-k8s.io/v1beta2/${name%.yaml}"
	done
	for name in localqueues clusterqueues cohorts workloads multikueueclusters; do # those that Kueue converts between versions, as its kustomization has it
		named "$bin/config/crd/patches/webhook_in_$name.yaml" | apply "$crds/$name.kueue.x-k8s.io" conversion
	done
}

# webhooks are those of Kueue's own kinds and of Jobs: others are not in the cluster, or not to be queued.
webhooks() {
	local kind
	for kind in mutating validating; do
		named "$bin/config/webhook/manifests.yaml" | awk -v kind="$kind" '
			function out() { if (mine && (head || block ~ /path: .*-(batch-v1-job|kueue-x-k8s-io-.*)\n/)) printf "%s", block; block = ""; head = 0 }
			/^---$/ { out(); head = 1; mine = 0; next }
			/^- admissionReviewVersions:/ { out() }
			$0 == "  name: kueue-" kind "-webhook-configuration" { mine = 1 }
			{ block = block $0 "\n" }
			END { out() }' |
			apply "/apis/admissionregistration.k8s.io/v1/${kind}webhookconfigurations/kueue-$kind-webhook-configuration"
	done
}

certificate() {
	local file
	for file in tls.crt tls.key; do
		api GET /api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert | grep -o "\"$file\": *\"[^\"]*\"" | cut -d'"' -f4 | base64 -d >"$dir/kueue/$file"
		[ -s "$dir/kueue/$file" ] || return 1
	done
	mv "$dir"/kueue/tls.* "$dir/kueue/certs/"
}

kueue() {
	cat >"$dir/kueue/config.yaml" <<K
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: "0"}
webhook: {port: 443, certDir: $dir/kueue/certs}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true, webhookServiceName: kueue-webhook-service, webhookSecretName: kueue-webhook-server-cert}
integrations: {frameworks: [batch/job]}
featureGates: {VisibilityOnDemand: false}
K
	printf '%q ' nsenter --net="/run/netns/$ns" "$bin/kueue" --kubeconfig="$dir/pki/manager.kubeconfig" --config="$dir/kueue/config.yaml" \
		--zap-log-level=2 >"$dir/run/kueue.command"
	"$here/part.sh" "$dir" start kueue
	until_ 600 certificate
	until_ 600 curl -sS --fail "http://$node:8081/readyz"
}

queue() {
	apply /apis/kueue.x-k8s.io/v1beta2/resourceflavors/any <<<'{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: any}}'
	apply /apis/kueue.x-k8s.io/v1beta2/clusterqueues/team-a <<-'K'
		apiVersion: kueue.x-k8s.io/v1beta2
		kind: ClusterQueue
		metadata: {name: team-a}
		spec:
		  namespaceSelector: {}
		  preemption: {withinClusterQueue: LowerPriority}
		  resourceGroups:
		    - coveredResources: [cpu, memory]
		      flavors: [{name: any, resources: [{name: cpu, nominalQuota: 20m}, {name: memory, nominalQuota: 64Gi}]}]
	K
	apply /apis/kueue.x-k8s.io/v1beta2/namespaces/queued/localqueues/team-a <<-'K'
		{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team-a, namespace: queued}, spec: {clusterQueue: team-a}}
	K
	apply /apis/scheduling.k8s.io/v1/priorityclasses/urgent <<<'{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}'
}

for name in kueue-system queued; do apply "/api/v1/namespaces/$name" <<<"{apiVersion: v1, kind: Namespace, metadata: {name: $name}}"; done
apply /api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert <<-'K'
	{apiVersion: v1, kind: Secret, metadata: {name: kueue-webhook-server-cert, namespace: kueue-system}}
K
apply /api/v1/namespaces/kueue-system/services/kueue-webhook-service <<K
{apiVersion: v1, kind: Service, metadata: {name: kueue-webhook-service, namespace: kueue-system}, spec: {type: ExternalName, externalName: $node}}
K
definitions
webhooks
kueue
queue
echo "export TRAINYARD_TEST_KUEUE=queued/team-a"
