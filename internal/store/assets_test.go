package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func data(name, version string) *trainyard.Resource {
	return &trainyard.Resource{Scope: scope, Kind: trainyard.KindData, Name: name, Version: version, Properties: json.RawMessage(`{"dataUri":"azureml://x","odd":[1,2]}`), Created: t0, Modified: t0}
}

func resourceNames(t *testing.T, s *Store, q trainyard.ResourceQuery) string {
	t.Helper()
	var out []string
	for {
		p, err := s.Resources(bg, q)
		if err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
		for _, r := range p.Items {
			out = append(out, strings.TrimSuffix(r.Name+":"+r.Version, ":"))
		}
		if q.After = p.Next; p.Next == "" {
			return strings.Join(out, " ")
		}
	}
}

func TestResources(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		r := data("Iris", "1")
		r.Tags, r.Secret, r.Sku = map[string]string{"a": "b"}, json.RawMessage(`{"key":"k"}`), json.RawMessage(`{"name":"Basic"}`)
		add(t, s, r)
		got, err := s.Resource(bg, scope, trainyard.KindData, "iris", "1")
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "resource", got, r)
		must(t, s, func(tx *Tx) error {
			up := data("IRIS", "1")
			up.Archived = true
			created, err := tx.PutResource(up)
			if created || err != nil {
				t.Errorf("replacing: created %t, %v", created, err)
			}
			in, err := tx.Resource(scope, trainyard.KindData, "iris", "1")
			if err == nil && !in.Archived {
				t.Error("the transaction does not see its own write")
			}
			return err
		})
		add(t, s, data("iris", "2"), data("iris", "zz"), data("wine", "2026-01"), data("old", "9"))
		other := data("elsewhere", "1")
		other.Scope.Workspace = "Other"
		add(t, s, other)
		for _, tt := range []struct {
			name  string
			query trainyard.ResourceQuery
			want  string
		}{
			{"the newest active version of every name, newest first", trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindData}, "old:9 wine:2026-01 iris:zz"},
			{"in pages of one", trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindData, Top: 1}, "old:9 wine:2026-01 iris:zz"},
			{"versions of a name", trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindData, Name: "iris"}, "iris:zz iris:2"},
			{"versions of a name with the archived", trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindData, Name: "IRIS", View: trainyard.ViewAll}, "iris:zz iris:2 IRIS:1"},
			{"archived only", trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindData, View: trainyard.ViewArchived}, "IRIS:1"},
			{"another workspace, by subscription", trainyard.ResourceQuery{Scope: trainyard.Scope{Subscription: scope.Subscription}, Kind: trainyard.KindData, Name: "elsewhere"}, "elsewhere:1"},
			{"another kind", trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindModel}, ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if got := resourceNames(t, s, tt.query); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
		latest, next, err := s.NextVersion(bg, scope, trainyard.KindData, "Iris")
		if latest != "zz" || next != "3" || err != nil {
			t.Errorf("latest %q next %q %v", latest, next, err)
		}
		for _, archive := range []struct{ version, latest string }{{"zz", "2"}, {"2", "zz"}} { // 1 is archived; of none but archived ones it is the newest
			must(t, s, func(tx *Tx) error {
				up := data("iris", archive.version)
				up.Archived = true
				if _, err := tx.PutResource(up); err != nil {
					return err
				}
				if latest, _, err := tx.NextVersion(scope, trainyard.KindData, "iris"); latest != archive.latest || err != nil {
					t.Errorf("in the transaction that archives %s the latest is %q, want %q, %v", archive.version, latest, archive.latest, err)
				}
				return nil
			})
			if latest, next, err = s.NextVersion(bg, scope, trainyard.KindData, "iris"); latest != archive.latest || next != "3" || err != nil {
				t.Errorf("with %s archived, too, the latest is %q, want %q, next %q, %v", archive.version, latest, archive.latest, next, err)
			}
		}
		latest, next, err = s.NextVersion(bg, scope, trainyard.KindData, "nothing")
		if latest != "" || next != "1" || err != nil {
			t.Errorf("of an unknown name: latest %q next %q %v", latest, next, err)
		}
		if newest, err := s.Resource(bg, scope, trainyard.KindData, "iris", ""); err != nil || newest.Version != "zz" {
			t.Errorf("without a version: %+v, %v", newest, err)
		}
		_, err = s.Resource(bg, scope, trainyard.KindData, "iris", "77")
		wantError(t, err, trainyard.CodeNotFound, `data "iris" version "77" does not exist in workspace "default"`)
		_, err = s.Resources(bg, trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindData, After: "'; DROP"})
		wantError(t, err, trainyard.CodeInvalid, "begin the list again")
		must(t, s, func(tx *Tx) error { return tx.DeleteResource(scope, trainyard.KindData, "IRIS", "2") })
		err = s.Update(bg, func(tx *Tx) error { return tx.DeleteResource(scope, trainyard.KindData, "iris", "2") })
		wantError(t, err, trainyard.CodeNotFound, "iris")
		err = s.Update(bg, func(tx *Tx) error { return tx.DeleteResource(scope, trainyard.KindData, "iris", "") })
		wantError(t, err, trainyard.CodeInvalid, "which version")
	})
}

func TestDatastoresByDefaultAndCodesByHash(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		store := func(name string, def bool) *trainyard.Resource {
			return &trainyard.Resource{Scope: scope, Kind: trainyard.KindDatastore, Name: name, Properties: json.RawMessage(fmt.Sprintf(`{"isDefault":%t}`, def))}
		}
		code := func(name, hash string) *trainyard.Resource {
			return &trainyard.Resource{Scope: scope, Kind: trainyard.KindCode, Name: name, Version: "1", Hash: hash, Properties: json.RawMessage(`{}`)}
		}
		add(t, s, store("workspaceblobstore", true), store("workspaceartifactstore", false), code("a", "h1"), code("b", "h2"), code("c", "h1"))
		yes, no := true, false
		for want, q := range map[string]trainyard.ResourceQuery{
			"workspaceblobstore":                        {Scope: scope, Kind: trainyard.KindDatastore, Default: &yes},
			"workspaceartifactstore":                    {Scope: scope, Kind: trainyard.KindDatastore, Default: &no},
			"workspaceartifactstore workspaceblobstore": {Scope: scope, Kind: trainyard.KindDatastore},
			"c:1 a:1": {Scope: scope, Kind: trainyard.KindCode, Hash: "h1"},
			"b:1":     {Scope: scope, Kind: trainyard.KindCode, Name: "b", Hash: "h2"},
		} {
			if got := resourceNames(t, s, q); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

func TestWorkspacesOfAllGroups(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		for _, where := range []string{"a/one", "a/two", "B/three"} {
			group, name, _ := strings.Cut(where, "/")
			in := trainyard.Scope{Subscription: scope.Subscription, ResourceGroup: group, Workspace: name}
			add(t, s, &trainyard.Resource{Scope: in, Kind: trainyard.KindWorkspace, Name: name, Properties: json.RawMessage(`{}`)})
		}
		for want, in := range map[string]trainyard.Scope{
			"three two one": {Subscription: scope.Subscription},
			"two one":       {Subscription: scope.Subscription, ResourceGroup: "A"},
			"three":         {Subscription: scope.Subscription, ResourceGroup: "b", Workspace: "Three"},
			"":              {Subscription: "another"},
		} {
			if got := resourceNames(t, s, trainyard.ResourceQuery{Scope: in, Kind: trainyard.KindWorkspace}); got != want {
				t.Errorf("%+v: got %q, want %q", in, got, want)
			}
		}
	})
}

func jobNames(t *testing.T, s *Store, q trainyard.JobQuery) string {
	t.Helper()
	var out []string
	for {
		p, err := s.Jobs(bg, q)
		if err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
		for _, j := range p.Items {
			out = append(out, j.Name)
		}
		if q.After = p.Next; p.Next == "" {
			return strings.Join(out, " ")
		}
	}
}

func TestJobsAreListedByWhatIsAsked(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		for i := range 6 {
			j := aJob(fmt.Sprintf("j%d", i), []string{"local", "gpu"}[i%2], 1, 1)
			j.Spec.Tags = map[string]string{"even": fmt.Sprint(i%2 == 0)}
			if i == 3 {
				j.Spec.Tags["odd one"] = "a=b"
			}
			j.Spec.IsArchived = i == 5
			add(t, s, j)
		}
		must(t, s, func(tx *Tx) error {
			j, err := tx.Job(key("j0"))
			if err != nil {
				return err
			}
			if err := j.MoveTo(trainyard.JobCanceled, trainyard.Reason{Code: "Canceled"}, t0); err != nil {
				return err
			}
			return tx.PutJob(j)
		})
		elsewhere := aJob("elsewhere", "local", 1, 1)
		elsewhere.Scope.Workspace = "other"
		add(t, s, elsewhere)
		for _, tt := range []struct {
			name  string
			query trainyard.JobQuery
			want  string
		}{
			{"newest first, without the archived", trainyard.JobQuery{Scope: scope}, "j4 j3 j2 j1 j0"},
			{"in pages of two", trainyard.JobQuery{Scope: scope, Top: 2}, "j4 j3 j2 j1 j0"},
			{"in pages that end with the list", trainyard.JobQuery{Scope: scope, Top: 5}, "j4 j3 j2 j1 j0"},
			{"all", trainyard.JobQuery{Scope: scope, View: trainyard.ViewAll}, "j5 j4 j3 j2 j1 j0"},
			{"archived", trainyard.JobQuery{Scope: scope, View: trainyard.ViewArchived}, "j5"},
			{"of a compute", trainyard.JobQuery{Scope: scope, Compute: "LOCAL"}, "j4 j2 j0"},
			{"in a state", trainyard.JobQuery{Scope: scope, States: []trainyard.JobState{trainyard.JobCanceled, trainyard.JobFailed}}, "j0"},
			{"with a tag", trainyard.JobQuery{Scope: scope, Tag: "odd one"}, "j3"},
			{"with a tag of a value", trainyard.JobQuery{Scope: scope, Tag: "even=true"}, "j4 j2 j0"},
			{"with a tag of a value with an equals sign", trainyard.JobQuery{Scope: scope, Tag: "odd one=a=b"}, "j3"},
			{"of every workspace", trainyard.JobQuery{Tag: "team"}, "elsewhere"},
			{"by everything at once", trainyard.JobQuery{Scope: scope, Compute: "local", Tag: "even=true", States: []trainyard.JobState{trainyard.JobQueued}, Top: 1}, "j4 j2"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if got := jobNames(t, s, tt.query); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
		must(t, s, func(tx *Tx) error { j, _ := tx.Job(key("j3")); j.Spec.Tags = nil; return tx.PutJob(j) })
		if got := jobNames(t, s, trainyard.JobQuery{Scope: scope, Tag: "odd one"}); got != "" {
			t.Errorf("a tag that was taken away finds %q", got)
		}
	})
}

func TestEventsAndSettings(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		must(t, s, func(tx *Tx) error {
			for i := range 5 {
				tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: fmt.Sprintf("j%d", i%2), What: "queued", Who: "ada", Message: "bad \xff\x00 text"})
			}
			tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "node", Subject: "j0", What: "joined"})
			return nil
		})
		got, err := s.Events(bg, trainyard.EventQuery{Scope: scope, Kind: "job", Subject: "j0"})
		if err != nil || len(got) != 3 {
			t.Fatalf("%d events, %v", len(got), err)
		}
		want := trainyard.Event{Seq: got[0].Seq, Time: t0, Scope: scope, Kind: "job", Subject: "j0", What: "queued", Who: "ada", Message: "bad \uFFFD text"}
		sameJSON(t, "event", got[0], want)
		rest, err := s.Events(bg, trainyard.EventQuery{After: got[0].Seq, Top: 2})
		if err != nil || len(rest) != 2 || rest[0].Seq <= got[0].Seq || rest[1].Seq <= rest[0].Seq {
			t.Errorf("after the first: %+v, %v", rest, err)
		}
		must(t, s, func(tx *Tx) error {
			for _, what := range []string{"engine away", "engine back", "left"} {
				tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "node", Subject: "j0", What: what})
			}
			tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "node", Subject: "j1", What: "engine away"})
			tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: "j0", What: "engine away"})
			return nil
		})
		for subject, want := range map[string]string{"j0": "engine back", "j1": "engine away", "j2": ""} {
			if e, err := s.LastEvent(bg, "node", subject, "engine away", "engine back"); err != nil || e.What != want {
				t.Errorf("the last of %s is %+v, %v", subject, e, err)
			}
		}
		_, err = s.Setting(bg, "quota")
		wantError(t, err, trainyard.CodeNotFound, "quota")
		for _, v := range [][]byte{{0, 255, 1}, {}, []byte("text")} {
			if err := s.PutSetting(bg, "quota", v); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Setting(bg, "quota"); string(got) != string(v) || got == nil || err != nil {
				t.Errorf("got %v, %v; want %v", got, err, v)
			}
			must(t, s, func(tx *Tx) error {
				got, err := tx.Setting("quota")
				if string(got) != string(v) || err != nil {
					t.Errorf("in a transaction: %v, %v; want %v", got, err, v)
				}
				return nil
			})
		}
	})
}

// What one caller hands in may not spoil the batch of others: names are refused, the rest is made text.
func TestNothingHandedInBreaksABatch(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		for _, name := range []string{"", "zero\x00", "bad\xff", strings.Repeat("x", 500)} {
			wantError(t, s.Update(bg, func(tx *Tx) error { return tx.InsertJob(aJob(name, "c", 1, 1)) }), trainyard.CodeInvalid)
			wantError(t, s.Update(bg, func(tx *Tx) error { return tx.PutNode(aNode(name, "c", 1)) }), trainyard.CodeInvalid)
			wantError(t, s.Update(bg, func(tx *Tx) error { return tx.PutCompute(cluster(name, 1)) }), trainyard.CodeInvalid)
			wantError(t, s.Update(bg, func(tx *Tx) error { return tx.PutSetting(name, nil) }), trainyard.CodeInvalid)
			wantError(t, s.Update(bg, func(tx *Tx) error { _, err := tx.PutResource(data(name, "1")); return err }), trainyard.CodeInvalid)
			if _, err := s.Job(bg, key(name)); !trainyard.IsNotFound(err) {
				t.Errorf("reading %q: %v", name, err)
			}
			s.Resource(bg, scope, trainyard.KindData, name, "1")
		}
		broken := data("broken", "1")
		broken.Properties = json.RawMessage(`{"a":`)
		wantError(t, s.Update(bg, func(tx *Tx) error { _, err := tx.PutResource(broken); return err }), trainyard.CodeInvalid, "broken")

		odd := aJob("odd", "c", 1, 1)
		odd.CreatedBy, odd.Spec.Description = "a\x00b\xff", "\x00\xff"
		odd.Spec.Tags = map[string]string{strings.Repeat("t", 5000): strings.Repeat("v", 5000), "z\x00": "\xff"}
		odd.Spec.Extra = trainyard.Extra{"raw": json.RawMessage("\"\xff\"")}
		odd.Status.Warnings = []string{"\xff\x00"}
		add(t, s, odd)
		if _, err := s.Job(bg, key("odd")); err != nil {
			t.Error(err)
		}
		if got := jobNames(t, s, trainyard.JobQuery{Tag: strings.Repeat("t", 5000)}); got != "odd" {
			t.Errorf("by its long tag: %q", got)
		}
	})
}
