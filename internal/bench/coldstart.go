package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// What is trained and served.
const (
	trainPy = `import joblib
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
x, y = load_iris(return_X_y=True)
joblib.dump(RandomForestClassifier(n_estimators=100, random_state=7).fit(x, y), "outputs/model.joblib")
`
	scorePy = `import json
import os

import joblib


def init():
    global model
    model = joblib.load(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model.joblib"))


def run(data):
    return {"predictions": model.predict(json.loads(data)["data"]).tolist()}
`
	trainConda = `name: train
dependencies:
- python>=3.9
- pip
- pip: [scikit-learn, joblib]
`
	serveConda = `name: serve
dependencies:
- python>=3.9
- pip
- pip: [scikit-learn, joblib, azureml-inference-server-http]
`
	trainYAML = `command: mkdir -p outputs && python train.py
code: train
environment:
  image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04
  conda_file: train.yml
compute: azureml:local
`
	coldYAML = `name: blue
endpoint_name: cold
model: azureml:forest:1
code_configuration:
  code: score
  scoring_script: score.py
environment:
  image: mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference:latest
  conda_file: serve.yml
instance_type: Standard_DS3_v2
request_settings:
  request_timeout_ms: 60000
scale_settings:
  type: target_utilization
  min_instances: 1
  max_instances: 1
  scale_to_zero_after: 1
  stable_window: 1
  panic_window: 1
`
)

// coldRounds is how often the deployment is woken.
const coldRounds = 5

// coldRow is one start split into its parts.
type coldRow struct {
	name  string
	whole time.Duration
	parts []part
}

type part struct {
	name string
	took time.Duration
}

// coldStart trains a model with scikit-learn, serves it, and wakes it when it has gone to zero.
func (y *yard) coldStart(ctx context.Context, out *serving) error {
	err := y.writeAll(map[string]string{"train/train.py": trainPy, "score/score.py": scorePy, "train.yml": trainConda, "serve.yml": serveConda})
	if err != nil {
		return err
	}
	job, err := y.write("job.yml", trainYAML)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"job", "create", "-f", job, "-n", "forest", "--stream"},
		{"model", "create", "-n", "forest", "--version", "1", "--path", "azureml://jobs/forest/outputs/artifacts/paths/outputs/model.joblib", "-o", "none"},
		{"online-endpoint", "create", "-n", "cold", "-o", "none"},
	} {
		if err := y.cli(ctx, args...); err != nil {
			return err
		}
	}
	first, err := y.firstStart(ctx)
	if err != nil {
		return err
	}
	out.starts = append(out.starts, first)
	// Only now: one that may have no replica would have let it go as soon as it was ready.
	if err := y.cli(ctx, "online-deployment", "update", "-n", "blue", "-e", "cold", "--set", "scale_settings.min_instances=0", "-o", "none"); err != nil {
		return err
	}
	address, key, err := y.address(ctx, "cold")
	if err != nil {
		return err
	}
	var warm []coldRow
	for range coldRounds {
		r, err := y.wake(ctx, address, key)
		if err != nil {
			return err
		}
		warm = append(warm, r)
	}
	out.starts = append(out.starts, median(warm))
	for _, r := range out.starts {
		fmt.Fprintf(os.Stderr, "%s: %s (%s)\n", r.name, ms(r.whole), sayParts(r.parts))
	}
	return nil
}

// firstStart is a deployment's first replica, whose environment has to be built.
func (y *yard) firstStart(ctx context.Context) (coldRow, error) {
	r := coldRow{name: "first replica of a deployment, its environment not yet built"}
	w, err := y.watch(ctx, "cold", "blue")
	if err != nil {
		return r, err
	}
	asked := time.Now()
	err = y.deploy(ctx, "cold", coldYAML, "--all-traffic")
	w.end()
	if err != nil {
		return r, err
	}
	if w.last == nil {
		return r, errors.New("its replica was not seen to be ready")
	}
	r.whole = w.ready.Sub(asked)
	r.parts = split(w.last, "command, its code and model sent, checked", asked, w.ready)
	return r, nil
}

// wake waits until the deployment has gone to zero, sends it a request, and splits the time to the answer.
func (y *yard) wake(ctx context.Context, address, key string) (coldRow, error) {
	r := coldRow{name: fmt.Sprintf("from zero, environment built, median of %d", coldRounds)}
	c, err := y.client()
	if err != nil {
		return r, err
	}
	if err := y.untilZero(ctx, c, "cold", "blue"); err != nil {
		return r, err
	}
	sent := time.Now()
	header, body, err := score(ctx, address, key)
	answered := time.Now()
	if err != nil {
		return r, err
	}
	if !strings.Contains(body, `"predictions"`) {
		return r, fmt.Errorf("it answered %q", body)
	}
	waited, err := strconv.Atoi(header.Get("x-trainyard-waited-ms"))
	if err != nil {
		return r, fmt.Errorf("the answer does not say how long its request was held: %w", err)
	}
	ready := sent.Add(time.Duration(waited) * time.Millisecond)
	for j, err := range y.replicas(ctx, c, "cold", "blue") {
		if err != nil {
			return r, err
		}
		r.parts = split(j, "held, replica asked for", sent, ready)
	}
	if r.parts == nil {
		return r, errors.New("no replica was there after the answer")
	}
	r.parts = append(r.parts, part{"answer", answered.Sub(ready)})
	r.whole = answered.Sub(sent)
	return r, nil
}

// split divides the time from a moment to when a replica was ready by its job's timeline.
func split(j *replicaJob, before string, from, ready time.Time) []part {
	names := []string{"node", "code and model staged", "environment", "process started"}
	of := map[string]int{trainyard.SpanQueue: 0, trainyard.SpanNode: 0, trainyard.SpanCode: 1, trainyard.SpanData: 1, trainyard.SpanEnvironment: 2, trainyard.SpanStart: 3}
	out := []part{{before, 0}}
	for _, name := range names {
		out = append(out, part{name, 0})
	}
	load := part{"Python, inference server, model loaded", 0}
	for i, s := range j.Properties.Timeline {
		if i == 0 {
			out[0].took = s.Start.Sub(from)
		}
		if at, known := of[s.Name]; known {
			out[at+1].took += s.End.Sub(s.Start)
		}
		if s.Name == trainyard.SpanUser {
			load.took = ready.Sub(s.Start)
			break
		}
	}
	return append(out, load)
}

// median is the row of the round in the middle.
func median(rounds []coldRow) coldRow {
	slices.SortFunc(rounds, func(a, b coldRow) int { return cmp.Compare(a.whole, b.whole) })
	return rounds[len(rounds)/2]
}

func sayParts(parts []part) string {
	var words []string
	for _, p := range parts {
		words = append(words, p.name+" "+ms(p.took))
	}
	return strings.Join(words, ", ")
}
