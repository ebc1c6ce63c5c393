package main

import (
	"strings"

	"github.com/trainyard/trainyard"
)

// endpointEntity gives an online endpoint az's names and values.
func endpointEntity(out map[string]any) {
	switch text(out, "auth_mode") {
	case trainyard.AuthAMLToken:
		out["auth_mode"] = "aml_token"
	case trainyard.AuthAADToken:
		out["auth_mode"] = "aad_token"
	default:
		lowered(out, "auth_mode")
	}
	lowered(out, "public_network_access")
	rename(out, "swagger_uri", "openapi_uri")
	if s := text(out, "compute"); s != "" {
		out["compute"] = reference(s)
	}
	if id := asMap(out["identity"]); id != nil {
		id = asMap(snakeAll(id))
		id["type"] = snake(text(id, "type"))
		out["identity"] = id
	}
}

// deploymentEntity gives an online deployment az's names and values.
func deploymentEntity(out, r map[string]any) {
	rename(out, "endpoint_compute_type", "type")
	out["type"] = serveWord(text(out, "type"))
	rename(out, "environment_id", "environment")
	for _, k := range []string{"model", "environment", "compute"} {
		if s := text(out, k); s != "" {
			out[k] = reference(s)
		}
	}
	if n, there := asMap(r["sku"])["capacity"]; there {
		out["instance_count"] = n
	}
	delete(out, "sku")
	if parts := strings.Split(text(r, "id"), "/"); len(parts) > 3 {
		out["endpoint_name"] = parts[len(parts)-3]
	}
	if code := asMap(out["code_configuration"]); code != nil {
		rename(code, "code_id", "code")
	}
	if s := asMap(out["request_settings"]); s != nil {
		for from, to := range map[string]string{"request_timeout": "request_timeout_ms", "max_queue_wait": "max_queue_wait_ms"} {
			seconds(s, from)
			if n, isNumber := s[from].(float64); isNumber {
				s[from] = n * 1000
			}
			rename(s, from, to)
		}
	}
	for _, name := range []string{"liveness_probe", "readiness_probe", "startup_probe"} {
		if p := asMap(out[name]); p != nil {
			for _, k := range []string{"initial_delay", "period", "timeout"} {
				seconds(p, k)
			}
		}
	}
	if s := asMap(out["scale_settings"]); s != nil {
		rename(s, "scale_type", "type")
		s["type"] = snake(text(s, "type"))
		for _, k := range []string{"polling_interval", "stable_window", "panic_window", "scale_to_zero_after"} {
			seconds(s, k)
		}
	}
	if needs := asMap(out["container_resource_requirements"]); needs != nil {
		rename(needs, "container_resource_requests", "requests")
		rename(needs, "container_resource_limits", "limits")
		delete(out, "container_resource_requirements")
		out["resources"] = needs
	}
	lowered(out, "egress_public_network_access")
}

// serveWord is a deployment's type as files have it.
func serveWord(typ string) string {
	if typ == trainyard.ServeCompute {
		return "attached"
	}
	return snake(typ)
}
