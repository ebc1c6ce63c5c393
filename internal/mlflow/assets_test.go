package mlflow_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// Assets: as control and the store have them, for one kind.

func (w *world) find(name, version string) int {
	return slices.IndexFunc(w.assets, func(r *trainyard.Resource) bool { return strings.EqualFold(r.Name, name) && r.Version == version })
}

func (w *world) Resource(_ context.Context, s trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind == trainyard.KindWorkspace && (s.Fold() == scope.Fold() || name == "else") {
		return &trainyard.Resource{Scope: s, Kind: kind, Name: name}, nil
	}
	if i := w.find(name, version); i >= 0 && kind == trainyard.KindModel {
		r := *w.assets[i]
		return &r, nil
	}
	return nil, trainyard.NotFound("%s %q version %q does not exist", kind, name, version)
}

func (w *world) Resources(_ context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var p trainyard.Page[*trainyard.Resource]
	if q.Kind != trainyard.KindModel || q.Scope.Fold() != scope.Fold() {
		return p, nil
	}
	seen := map[string]bool{}
	for _, r := range slices.Backward(w.assets) {
		folded := strings.ToLower(r.Name)
		if q.Name != "" && !strings.EqualFold(r.Name, q.Name) || q.Name == "" && seen[folded] || r.Archived {
			continue
		}
		seen[folded] = true
		c := *r
		p.Items = append(p.Items, &c)
	}
	return p, nil
}

func (w *world) NextVersion(_ context.Context, _ trainyard.Scope, _ trainyard.Kind, name string) (latest, next string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	highest := 0
	for _, r := range w.assets {
		if strings.EqualFold(r.Name, name) {
			latest = r.Version
			n, _ := strconv.Atoi(r.Version)
			highest = max(highest, n)
		}
	}
	return latest, strconv.Itoa(highest + 1), nil
}

func (w *world) PutResource(_ context.Context, who trainyard.User, in *trainyard.Resource) (*trainyard.Resource, bool, error) {
	now := w.tick()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := *in
	r.Created, r.Modified, r.CreatedBy = now, now, who.Name
	if i := w.find(r.Name, r.Version); i >= 0 {
		r.Created, r.CreatedBy, r.Name = w.assets[i].Created, w.assets[i].CreatedBy, w.assets[i].Name
		var a, b struct{ ModelURI string }
		_ = json.Unmarshal(r.Properties, &a)
		_ = json.Unmarshal(w.assets[i].Properties, &b)
		if a != b {
			return nil, false, trainyard.Conflict("versions are immutable")
		}
		w.assets[i] = &r
		return &r, false, nil
	}
	w.assets = append(w.assets, &r)
	return &r, true, nil
}

func (w *world) DeleteResource(_ context.Context, _ trainyard.User, _ trainyard.Scope, _ trainyard.Kind, name, version string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.find(name, version)
	if i < 0 {
		return trainyard.NotFound("model %q version %q does not exist", name, version)
	}
	w.assets = slices.Delete(w.assets, i, i+1)
	return nil
}
