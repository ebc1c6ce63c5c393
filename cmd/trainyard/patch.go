package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// fields says where the API keeps what az calls by a name: "min_instances" → properties.properties.scaleSettings.minNodeCount. A name
// that ends in ".*" stands for anything below it.
type fields map[string]string

// patch makes a JSON merge patch of --set and --remove arguments.
func (f fields) patch(sets, removes []string) (map[string]any, error) {
	out := map[string]any{}
	for _, s := range sets {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usagef("--set %s: want NAME=VALUE", s)
		}
		path, err := f.find(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		put(out, path, parsed(value, path))
	}
	for _, name := range removes {
		path, err := f.find(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		put(out, path, nil)
	}
	return out, nil
}

// find is the API's path of a field.
func (f fields) find(name string) ([]string, error) {
	if path, ok := f[name]; ok {
		return strings.Split(path, "."), nil
	}
	if head, rest, deep := strings.Cut(name, "."); deep {
		if path, ok := f[head+".*"]; ok {
			return append(strings.Split(path, "."), strings.Trim(rest, `"'`)), nil // a tag's name may hold dots
		}
	}
	known := slices.Sorted(maps.Keys(f))
	return nil, usagef("%q cannot be changed; what can: %s", name, strings.Join(known, ", "))
}

// parsed is a value as az reads it: JSON if it is any, text otherwise. What users name (tags) is always text.
func parsed(value string, path []string) any {
	if slices.Contains(path, "tags") || len(path) > 2 && path[1] == "properties" && path[0] == "properties" && path[2] != "scaleSettings" {
		return value
	}
	last := path[len(path)-1]
	var v any
	if last == "description" || last == "displayName" || last == "experimentName" || last == "friendlyName" || json.Unmarshal([]byte(value), &v) != nil {
		return value
	}
	return v
}

func put(m map[string]any, path []string, v any) {
	for _, p := range path[:len(path)-1] {
		next := asMap(m[p])
		if next == nil {
			next = map[string]any{}
			m[p] = next
		}
		m = next
	}
	m[path[len(path)-1]] = v
}

// merge applies a JSON merge patch (RFC 7396) to m.
func merge(m, patch map[string]any) {
	for k, v := range patch {
		sub := asMap(v)
		switch {
		case v == nil:
			delete(m, k)
		case sub != nil:
			below := asMap(m[k])
			if below == nil {
				below = map[string]any{}
				m[k] = below
			}
			merge(below, sub)
		default:
			m[k] = v
		}
	}
}
