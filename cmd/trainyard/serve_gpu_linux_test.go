package main

import (
	"strings"
	"time"

	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// scalesByGPU has a deployment on nodes with a GPU each, of which this computer has two: it has another replica while the first one's GPU is
// busy, whatever the other GPU does, and none is taken away while nobody knows what they do.
func (l *serveLab) scalesByGPU(smi *gputest.StandIn) {
	file := l.deployment("green", "gpu", 1,
		"scale_settings: {type: target_utilization, metric: gpu, target: 50, min_instances: 1, max_instances: 2, panic_window: 1, stable_window: 1}")
	l.cli("online-deployment", "create", "-o", "none", "-f", l.file("gpu.yml", strings.Replace(readText(l.t, file), "Standard_F2s_v2", "Standard_NC4as_T4_v3", 1)))
	show := func(query string) string {
		return l.cli("online-deployment", "show", "-n", "green", "--endpoint-name", "sums", "--query", query, "-o", "tsv")
	}
	const ready = "length(replicas[?state=='Ready'] || `[]`)"
	l.wait("its GPU's use is told", func() bool { return show("replicas[0].gpu") == "10" })
	if n := show("wanted"); n != "1" {
		l.t.Errorf("%s are wanted while its GPU is idle", n)
	}
	smi.Set("90", "0") // the mean of both would be enough for one
	l.wait("there are two", func() bool { return show(ready) == "2" })
	l.wait("each tells of its own GPU", func() bool {
		both := strings.Fields(show("sort(replicas[].gpu)"))
		return len(both) == 2 && both[0] == "0" && both[1] == "90"
	})
	smi.Set("[N/A]", "[N/A]")
	l.wait("nobody tells any more", func() bool { return show("length(replicas[?gpu != null] || `[]`)") == "0" })
	<-time.After(3 * time.Second) // longer than both windows
	if n := show("wanted"); n != "2" {
		l.t.Errorf("%s are wanted when nobody knows what their GPUs do: %s", n, show("wanted_reason.message"))
	}
	smi.Set("10", "0")
	l.wait("there is one again", func() bool { return show("wanted") == "1" && show("length(replicas)") == "1" })
}
