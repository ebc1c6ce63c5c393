//go:build linux

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// BenchmarkBesideAJob runs a task through the driver and a plain Job of the same image in turn, from the call to the end, and tells what
// each takes: until the pod is seen to have ended, and until the Job counts as complete.
func BenchmarkBesideAJob(b *testing.B) {
	d := openDriver(b, newCluster(b), b.TempDir())
	defer d.Close()
	if err := d.benchTask(b.Context(), 0, new(lap)); err != nil { // packs the program
		b.Fatal(err)
	}
	var ours, plain lap
	for n := 1; b.Loop(); n++ {
		if err := d.benchTask(b.Context(), n, &ours); err != nil {
			b.Fatal(err)
		}
		if err := d.benchJob(b.Context(), n, &plain); err != nil {
			b.Fatal(err)
		}
	}
	ours.report(b, "task")
	plain.report(b, "job")
}

// lap adds up times.
type lap struct {
	n                       int
	began, ended, completed time.Duration
}

func (l *lap) report(b *testing.B, name string) {
	if l.began > 0 { // of a Job Kubernetes tells whole seconds
		b.ReportMetric(float64(l.began.Milliseconds())/float64(l.n), "ms/"+name+"-begun")
	}
	b.ReportMetric(float64(l.ended.Milliseconds())/float64(l.n), "ms/"+name+"-ended")
	b.ReportMetric(float64(l.completed.Milliseconds())/float64(l.n), "ms/"+name+"-complete")
}

func (d *Driver) benchTask(ctx context.Context, n int, l *lap) error {
	k := trainyard.Task{ID: trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), fmt.Sprintf("bench-%d", n)), 1, 0),
		Scope: trainyard.DefaultScope(), JobName: "bench", Hi: 1, Nodes: 1, Run: trainyard.Run{Command: "true", Dir: "/"}}
	from := time.Now()
	if err := d.Start(ctx, k); err != nil {
		return err
	}
	var o trainyard.Observation
	for o, _ = d.find(k.ID); o.State != trainyard.TaskEnded; o, _ = d.find(k.ID) {
		<-d.Changed()
	}
	l.began += o.Started.Sub(from)
	l.ended += time.Since(from)
	if err := d.completed(ctx, d.nameOf(k.ID)); err != nil {
		return err
	}
	l.completed += time.Since(from)
	l.n++
	return d.Remove(ctx, k.ID)
}

func (d *Driver) benchJob(ctx context.Context, n int, l *lap) error {
	name := fmt.Sprintf("plain-%d", n)
	from := time.Now()
	err := d.api.create(ctx, d.api.path(jobs), object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": name},
		"spec": object{"backoffLimit": 0, "template": object{"spec": object{"restartPolicy": "Never",
			"containers": []object{{"name": containerName, "image": baseImage, "command": []string{"true"}}}}}}}, nil)
	if err != nil {
		return err
	}
	err = d.watchFor(ctx, pods, "job-name="+name, func(data []byte) bool {
		var p pod
		return json.Unmarshal(data, &p) == nil && (&podSight{pod: &p}).ended()
	})
	if err != nil {
		return err
	}
	l.ended += time.Since(from)
	if err := d.completed(ctx, name); err != nil {
		return err
	}
	l.completed += time.Since(from)
	l.n++
	return d.api.remove(ctx, d.api.path(jobs, name), object{"propagationPolicy": "Background"})
}

func (d *Driver) completed(ctx context.Context, name string) error {
	return d.watchFor(ctx, jobs, "batch.kubernetes.io/job-name="+name, func(data []byte) bool {
		var j job
		return json.Unmarshal(data, &j) == nil && isComplete(&j)
	})
}

// watchFor returns when an object is as wanted. It is told what there is first.
func (d *Driver) watchFor(ctx context.Context, kind, selector string, wanted func([]byte) bool) error {
	q := url.Values{"watch": {"1"}}
	if kind == jobs { // Jobs have no label of their own name
		q.Set("fieldSelector", "metadata.name="+selector[len("batch.kubernetes.io/job-name="):])
	} else {
		q.Set("labelSelector", selector)
	}
	r, err := d.api.send(ctx, http.MethodGet, d.api.path(kind), q, "", nil)
	if err != nil {
		return err
	}
	defer r.Close()
	for in := json.NewDecoder(r); ; {
		var e struct {
			Object json.RawMessage `json:"object"`
		}
		if err := in.Decode(&e); err != nil {
			return err
		}
		if wanted(e.Object) {
			return nil
		}
	}
}
