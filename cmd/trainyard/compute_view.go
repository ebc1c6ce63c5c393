package main

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

func (a *app) computeView() view {
	return view{table: func(items []any) *table {
		t := &table{heads: []string{"Name", "Type", "State", "Nodes", "Size", "Idle", "Tier", "Why"}, right: []bool{3: true}, spare: []int{6, 5, 4, 1, 7},
			tint: func(col int, cell string) string {
				if col == 2 {
					return stateColor(cell)
				}
				return ""
			}}
		for _, it := range items {
			e := asMap(it)
			idle := ""
			if s, ok := e["idle_time_before_scale_down"].(float64); ok {
				idle = short(time.Duration(s) * time.Second)
			}
			t.add(text(e, "name"), text(e, "type"), computeState(e), nodeCount(e), text(e, "size"), idle, text(e, "tier"), computeWhy(e))
		}
		return t
	}, detail: a.computeDetail}
}

// computeState is what a person wants to know: steady, resizing, stopped, or what the provisioning came to.
func computeState(e map[string]any) string {
	stopped, _ := e["stopped"].(bool)
	switch p := text(e, "provisioning_state"); {
	case p != "Succeeded":
		return p
	case stopped:
		return "Stopped"
	case text(e, "allocation_state") != "":
		return text(e, "allocation_state")
	}
	return "Ready"
}

// nodeCount is "1 → 2 of 4": there, wanted, at most.
func nodeCount(e map[string]any) string {
	if e["current_node_count"] == nil {
		return ""
	}
	now, target := plain(e["current_node_count"]), plain(e["target_node_count"])
	s := now
	if target != now && target != "" {
		s += " → " + target
	}
	if e["max_instances"] != nil {
		s += " of " + plain(e["max_instances"])
	}
	return s
}

func computeWhy(e map[string]any) string {
	if text(e, "provisioning_state") == "Deleting" { // what is wrong is said after what is waited for
		return text(e, "reason", "message")
	}
	if errs, _ := e["errors"].([]any); len(errs) > 0 {
		last := asMap(errs[len(errs)-1])
		if msg := text(last, "error", "message"); msg != "" {
			return msg
		}
	}
	return text(e, "reason", "message")
}

func (a *app) computeDetail(e map[string]any) {
	fmt.Fprintf(a.out, "compute %s  %s\n", a.paint(bold, clean(text(e, "name"))), a.paint(stateColor(computeState(e)), computeState(e)))
	scale := ""
	if e["max_instances"] != nil {
		scale = plain(e["min_instances"]) + " to " + plain(e["max_instances"]) + " nodes"
		if s, ok := e["idle_time_before_scale_down"].(float64); ok {
			scale += ", an idle node goes after " + long(time.Duration(s)*time.Second)
		}
	}
	counts := []string{}
	for _, state := range []string{"creating", "preparing", "running", "idle", "leaving", "unusable", "preempted"} {
		n, _ := asMap(e["node_state_counts"])[state+"_node_count"].(float64)
		if state == "preparing" {
			creating, _ := asMap(e["node_state_counts"])["creating_node_count"].(float64)
			n -= creating // the API counts those as preparing too
		}
		if n > 0 {
			counts = append(counts, plain(n)+" "+state)
		}
	}
	a.pairs(a.out, [][2]string{
		{"type", text(e, "type")}, {"size", text(e, "size")}, {"tier", text(e, "tier")}, {"scale", scale},
		{"nodes", strings.TrimSuffix(nodeCount(e)+": "+strings.Join(counts, ", "), ": ")}, {"why", computeWhy(e)},
		{"address", computeAddress(e)}, {"partition", text(e, "partition")}, {"namespace", text(e, "namespace")},
		{"description", text(e, "description")}, {"location", computePlace(e)}, {"tags", tagsText(e["tags"])},
		{"created", ago(a.now(), parseTime(e["created_on"]))}, {"warnings", linesOf(e["warnings"])},
	})
}

// computePlace is where a compute's nodes come from: the location itself, and the word for it where that is another.
func computePlace(e map[string]any) string {
	word, place := text(e, "location"), text(e, "place")
	attached, _ := e["is_attached_compute"].(bool)
	switch {
	case attached: // it is where its address says
		return ""
	case place == "":
		return word
	case strings.EqualFold(word, place) || strings.EqualFold(word, trainyard.DefaultLocation):
		return place
	}
	return place + " (" + word + ")"
}

// computeAddress is how an attached compute is reached: its machine, login node or slurmrestd, or the context of the kubeconfig.
func computeAddress(e map[string]any) string {
	at := text(e, "address")
	if at == "" {
		return cmp.Or(text(e, "rest_url"), text(e, "context"))
	}
	if port := plain(e["ssh_port"]); port != "" && port != "22" {
		at = net.JoinHostPort(at, port)
	}
	if user := text(e, "administrator_account", "username"); user != "" {
		at = user + "@" + at
	}
	return at
}

// stateColor is the colour of a state, whatever it is the state of.
func stateColor(s string) string {
	switch strings.ToLower(s) {
	case "completed", "succeeded", "steady", "ready", "idle":
		return green
	case "failed", "unusable":
		return red
	case "running":
		return cyan
	case "queued", "preparing", "resizing", "creating", "updating", "scaling", "finalizing", "leaving", "cancelrequested", "deleting", "starting":
		return yellow
	case "canceled", "stopped", "notstarted", "preempted":
		return grey
	}
	return ""
}

func tagsText(v any) string {
	m := asMap(v)
	var parts []string
	for _, k := range sortedKeys(m) {
		parts = append(parts, k+"="+plain(m[k]))
	}
	return strings.Join(parts, "  ")
}

func linesOf(v any) string {
	l, _ := v.([]any)
	var parts []string
	for _, x := range l {
		parts = append(parts, plain(x))
	}
	return strings.Join(parts, "\n")
}
