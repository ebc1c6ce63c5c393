package main

import (
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
)

// The shapes that "az ml" prints: snake_case, flat, ARM ids as azureml: references. --query of people's scripts is written for them. What
// az has no name for (reason, timeline, warnings, node counts) keeps the API's name in snake_case.

// asMap is v as an object; nil for anything else.
func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// text is a member of m that is a string.
func text(m map[string]any, path ...string) string {
	for i, p := range path {
		if i == len(path)-1 {
			s, _ := m[p].(string)
			return s
		}
		m = asMap(m[p])
	}
	return ""
}

// snake turns displayName into display_name and memoryGB into memory_gb.
func snake(s string) string {
	if s == "mlFlowTrackingUri" {
		return "mlflow_tracking_uri"
	}
	var b strings.Builder
	r := []rune(s)
	for i, c := range r {
		if unicode.IsUpper(c) && i > 0 && (!unicode.IsUpper(r[i-1]) && r[i-1] != '_' || i+1 < len(r) && unicode.IsLower(r[i+1]) && r[i-1] != '_') {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// usersKeys are objects whose members are named by users.
var usersKeys = map[string]bool{"tags": true, "properties": true, "environmentVariables": true, "inputs": true, "outputs": true, "services": true,
	"traffic": true, "mirrorTraffic": true, "collections": true, "flavors": true}

// snakeAll renames the members of an object and of what it holds, but not names that users gave.
func snakeAll(v any) any {
	switch x := v.(type) {
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = snakeAll(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			if usersKeys[k] {
				out[snake(k)] = e
				continue
			}
			out[snake(k)] = snakeAll(e)
		}
		return out
	}
	return v
}

// entity is an ARM resource of a kind as az prints it.
func entity(kind trainyard.Kind, r map[string]any) map[string]any {
	props := asMap(r["properties"])
	out := asMap(snakeAll(props))
	if out == nil {
		out = map[string]any{}
	}
	move(out, r, "id", "name", "location", "tags", "identity", "sku")
	if id, err := trainyard.ParseID(text(r, "id")); err == nil {
		out["resourceGroup"] = id.Scope.ResourceGroup
		if kind.Versioned() {
			out["name"] = id.Name
			if id.Version != "" {
				out["version"] = id.Version
			}
		}
	}
	if sys := asMap(snakeAll(r["systemData"])); sys != nil {
		out["creation_context"] = sys
	}
	if archived, _ := out["is_archived"].(bool); !archived {
		delete(out, "is_archived")
	}
	if anonymous, _ := out["is_anonymous"].(bool); !anonymous {
		delete(out, "is_anonymous")
	}
	adjust(kind, out, props)
	if kind == trainyard.KindOnlineDeployment {
		deploymentEntity(out, r)
	}
	return out
}

// adjust gives the fields of a kind az's names and values.
func adjust(kind trainyard.Kind, out, props map[string]any) {
	switch kind {
	case trainyard.KindJob:
		jobEntity(out, props)
	case trainyard.KindCompute:
		computeEntity(out, props)
	case trainyard.KindEnvironment:
		environmentEntity(out, props)
	case trainyard.KindData:
		rename(out, "data_uri", "path")
		rename(out, "data_type", "type")
	case trainyard.KindModel:
		rename(out, "model_uri", "path")
		rename(out, "model_type", "type")
	case trainyard.KindComponent:
		delete(out, "component_spec")
		for k, v := range asMap(props["componentSpec"]) { // it is kept as its file has it
			if k != "name" && k != "version" {
				out[k] = v
			}
		}
	case trainyard.KindOnlineEndpoint:
		endpointEntity(out)
	case trainyard.KindDatastore:
		rename(out, "datastore_type", "type")
		out["type"] = snake(text(out, "type"))
		out["credentials"] = map[string]any{}
	case trainyard.KindBatchEndpoint, trainyard.KindBatchDeployment:
		batchEntity(out)
	case trainyard.KindWorkspace:
		rename(out, "friendly_name", "display_name")
		out["resource_group"] = out["resourceGroup"]
		if id := asMap(out["identity"]); id != nil {
			out["identity"] = snakeAll(id)
		}
	}
}

// move copies members that are there.
func move(out, from map[string]any, names ...string) {
	for _, n := range names {
		if v, ok := from[n]; ok && v != nil {
			out[n] = v
		}
	}
}

func rename(m map[string]any, from, to string) {
	if v, ok := m[from]; ok {
		delete(m, from)
		m[to] = v
	}
}

func jobEntity(out, props map[string]any) {
	rename(out, "job_type", "type")
	out["type"] = strings.ToLower(text(out, "type"))
	rename(out, "compute_id", "compute")
	rename(out, "environment_id", "environment")
	rename(out, "code_id", "code")
	out["compute"], out["environment"] = reference(text(out, "compute")), reference(text(out, "environment"))
	if code := text(out, "code"); code != "" {
		out["code"] = "azureml:" + strings.TrimPrefix(code, "azureml:")
	}
	for _, k := range []string{"compute", "environment"} {
		if out[k] == "" {
			delete(out, k)
		}
	}
	out["id"] = "azureml:" + text(out, "id")
	out["inputs"] = ports(asMap(props["inputs"]), "jobInputType")
	out["outputs"] = ports(asMap(props["outputs"]), "jobOutputType")
	services := map[string]any{}
	for name, s := range asMap(props["services"]) {
		one := asMap(snakeAll(s))
		rename(one, "job_service_type", "type")
		services[name] = one
	}
	out["services"] = services
	runEntity(out)
}

// runEntity is the part of a job that says how it is run.
func runEntity(out map[string]any) {
	if d := asMap(out["distribution"]); d != nil {
		rename(d, "distribution_type", "type")
		d["type"] = strings.ToLower(text(d, "type"))
	}
	if l := asMap(out["limits"]); l != nil {
		delete(l, "job_limits_type")
		seconds(l, "timeout")
	}
	if q := asMap(out["queue_settings"]); q != nil {
		lowered(q, "job_tier")
		if n, ok := q["priority"].(float64); ok && n >= 1 && n <= 3 {
			q["priority"] = []string{"low", "medium", "high"}[int(n)-1]
		}
	}
	if id := asMap(out["identity"]); id != nil {
		id = asMap(snakeAll(id))
		rename(id, "identity_type", "type")
		id["type"] = snake(text(id, "type"))
		out["identity"] = id
	}
}

// ports are the inputs or outputs of a job: a literal is its value, everything else an object.
func ports(m map[string]any, typeKey string) map[string]any {
	out := map[string]any{}
	for name, v := range m {
		p := asMap(v)
		if text(p, typeKey) == "literal" {
			out[name] = p["value"]
			continue
		}
		one := map[string]any{}
		for from, to := range map[string]string{typeKey: "type", "uri": "path", "assetName": "name", "assetVersion": "version", "description": "description"} {
			if s := text(p, from); s != "" {
				one[to] = s
			}
		}
		if strings.HasPrefix(text(one, "path"), "/subscriptions/") {
			one["path"] = reference(text(one, "path"))
		}
		if mode := text(p, "mode"); mode != "" {
			one["mode"] = modeWords[mode]
			if one["mode"] == "" {
				one["mode"] = snake(mode)
			}
		}
		out[name] = one
	}
	return out
}

var modeWords = map[string]string{"ReadOnlyMount": "ro_mount", "ReadWriteMount": "rw_mount", "EvalMount": "eval_mount",
	"EvalDownload": "eval_download", "Download": "download", "Upload": "upload", "Direct": "direct"}

// reference shortens an ARM id to azureml:NAME or azureml:NAME:VERSION. Other references stay as they are.
func reference(s string) string {
	id, err := trainyard.ParseID(s)
	switch {
	case err != nil && s != "" && !strings.Contains(s, ":"):
		return "azureml:" + s
	case err != nil:
		return s
	case id.Version != "":
		return "azureml:" + id.Name + ":" + id.Version
	case id.Label != "":
		return "azureml:" + id.Name + "@" + id.Label
	}
	return "azureml:" + id.Name
}

func computeEntity(out, props map[string]any) {
	rename(out, "compute_type", "type")
	out["type"] = strings.ToLower(text(out, "type"))
	delete(out, "compute_location")
	delete(out, "properties")
	own := asMap(props["properties"])
	if own == nil {
		return
	}
	for k, v := range asMap(snakeAll(own)) {
		out[k] = v
	}
	rename(out, "vm_size", "size")
	rename(out, "vm_priority", "tier")
	if t := text(out, "tier"); t != "" {
		out["tier"] = snake(t)
	}
	if s := asMap(own["scaleSettings"]); s != nil {
		delete(out, "scale_settings")
		out["min_instances"], out["max_instances"] = s["minNodeCount"], s["maxNodeCount"]
		if idle := s["nodeIdleTimeBeforeScaleDown"]; idle != nil {
			out["idle_time_before_scale_down"] = idle
			seconds(out, "idle_time_before_scale_down")
		}
	}
	if out["type"] == "amlcompute" {
		out["ssh_public_access_enabled"] = text(out, "remote_login_port_public_access") == "Enabled"
		delete(out, "remote_login_port_public_access")
		network := map[string]any{}
		if subnet := text(out, "subnet", "id"); subnet != "" {
			network["subnet"] = subnet
		}
		delete(out, "subnet")
		out["network_settings"] = network
	}
}

func environmentEntity(out, props map[string]any) {
	if raw := text(props, "condaFile"); raw != "" {
		var conda any
		if yaml.Unmarshal([]byte(raw), &conda) == nil {
			out["conda_file"] = conda
		}
	}
	if b := asMap(out["build"]); b != nil {
		rename(b, "context_uri", "path")
	}
	lowered(out, "os_type")
	delete(out, "environment_type")
	out["id"] = "azureml:" + text(out, "id")
}

func lowered(m map[string]any, key string) {
	if s := text(m, key); s != "" {
		m[key] = strings.ToLower(s)
	}
}

// seconds turns an ISO 8601 duration into a number of seconds, as az has them.
func seconds(m map[string]any, key string) {
	if d, err := trainyard.ParseISODuration(text(m, key)); err == nil {
		m[key] = d.Seconds()
	}
}
