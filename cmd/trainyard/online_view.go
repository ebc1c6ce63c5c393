package main

import (
	"cmp"
	"fmt"
	"strings"
)

func (a *app) endpointView() view {
	return view{table: func(items []any) *table {
		t := &table{heads: []string{"Name", "State", "Traffic", "Mirror", "Auth", "Compute", "Address", "Created"}, spare: []int{7, 4, 3, 5},
			tint: func(col int, cell string) string {
				if col == 1 {
					return stateColor(cell)
				}
				return ""
			}}
		for _, it := range items {
			e := asMap(it)
			t.add(text(e, "name"), text(e, "provisioning_state"), trafficText(e["traffic"]), trafficText(e["mirror_traffic"]), text(e, "auth_mode"),
				strings.TrimPrefix(text(e, "compute"), "azureml:"), text(e, "scoring_uri"), ago(a.now(), created(e)))
		}
		return t
	}, detail: a.endpointDetail}
}

// trafficText is "blue 90 %, green 10 %".
func trafficText(v any) string {
	m := asMap(v)
	var parts []string
	for _, k := range sortedKeys(m) {
		if n, _ := m[k].(float64); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", k, n))
		}
	}
	return strings.Join(parts, ", ")
}

func (a *app) endpointDetail(e map[string]any) {
	state := text(e, "provisioning_state")
	fmt.Fprintf(a.out, "online endpoint %s  %s\n", a.paint(bold, clean(text(e, "name"))), a.paint(stateColor(state), state))
	a.pairs(a.out, [][2]string{
		{"address", text(e, "scoring_uri")}, {"traffic", cmp.Or(trafficText(e["traffic"]), "none: no deployment has any")}, {"mirrored to", trafficText(e["mirror_traffic"])},
		{"opened by", text(e, "auth_mode")}, {"compute", strings.TrimPrefix(text(e, "compute"), "azureml:")}, {"description", text(e, "description")},
		{"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)},
	})
}

func (a *app) deploymentView() view {
	return view{table: a.deploymentTable, detail: a.deploymentDetail}
}

func (a *app) deploymentTable(items []any) *table {
	t := &table{heads: []string{"Deployment", "State", "Replicas", "Model", "Type", "Size", "Created", "Why"}, right: []bool{2: true}, spare: []int{6, 5, 4, 7},
		tint: func(col int, cell string) string {
			if col == 1 {
				return stateColor(cell)
			}
			return ""
		}}
	for _, it := range items {
		e := asMap(it)
		t.add(text(e, "name"), text(e, "provisioning_state"), replicaText(e), strings.TrimPrefix(text(e, "model"), "azureml:"), text(e, "type"),
			text(e, "instance_type"), ago(a.now(), created(e)), deploymentWhy(e))
	}
	return t
}

// replicaText is "1/2": ready, and wanted.
func replicaText(e map[string]any) string {
	ready, wanted := readyCount(e)
	return fmt.Sprintf("%d/%d", ready, wanted)
}

// deploymentWhy is what a person should know of the state: what it is at, or what went wrong.
func deploymentWhy(e map[string]any) string {
	if text(e, "provisioning_state") == "Succeeded" {
		return ""
	}
	why, _, _ := strings.Cut(text(e, "reason", "message"), "\n") // what follows is the log
	return strings.TrimSuffix(why, "; the end of its log:")
}

func (a *app) deploymentDetail(e map[string]any) {
	state := text(e, "provisioning_state")
	fmt.Fprintf(a.out, "deployment %s of online endpoint %s  %s\n", a.paint(bold, clean(text(e, "name"))), clean(text(e, "endpoint_name")), a.paint(stateColor(state), state))
	code := ""
	if c := asMap(e["code_configuration"]); c != nil {
		code = text(c, "scoring_script")
	}
	a.pairs(a.out, [][2]string{
		{"why", deploymentWhy(e)}, {"model", text(e, "model")}, {"code", code}, {"environment", text(e, "environment")}, {"runs on", placeText(e)},
		{"replicas", readyText(e)}, {"wanted for", text(e, "wanted_reason", "message")}, {"description", text(e, "description")},
		{"tags", tagsText(e["tags"])}, {"created", madeBy(a.now(), e)}, {"warnings", linesOf(e["warnings"])},
	})
	list, _ := e["replicas"].([]any)
	if len(list) == 0 {
		return
	}
	t := &table{heads: []string{"Replica", "State", "Node", "Address", "Since", "Why"}, spare: []int{3, 4, 2}, tint: func(col int, cell string) string {
		if col == 1 {
			return stateColor(cell)
		}
		return ""
	}}
	for _, it := range list {
		r := asMap(it)
		t.add(text(r, "name"), text(r, "state"), text(r, "node"), text(r, "address"), ago(a.now(), parseTime(r["since"])), text(r, "reason"))
	}
	t.print(a.console, a.out)
}

func placeText(e map[string]any) string {
	parts := []string{strings.ReplaceAll(text(e, "type"), "_", " ")}
	for _, k := range []string{"instance_type", "compute"} {
		if s := text(e, k); s != "" {
			parts = append(parts, strings.TrimPrefix(s, "azureml:"))
		}
	}
	return strings.Join(parts, ", ")
}
