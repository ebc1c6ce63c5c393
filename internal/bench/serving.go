package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serving is what the page says of models that are served.
type serving struct {
	ways    []wayRow
	starts  []coldRow
	idle    []row
	leftOut []string
}

// partLimit is how long a part of the measurements may take.
const partLimit = 5 * time.Minute

// The parts, as -only names them.
const (
	onlyServing = "serving" // all of them
	onlyStarts  = "starts"
	onlyGateway = "gateway"
	onlyIdle    = "idle"
)

func isServing(only string) bool {
	return slices.Contains([]string{onlyServing, onlyStarts, onlyGateway, onlyIdle}, only)
}

// serve measures what serves models, or one part of it. What cannot be measured here is named.
func serve(ctx context.Context, binary, only string) (*serving, error) {
	out := &serving{}
	s, err := startServer(ctx, binary, setup{})
	if err != nil {
		return nil, err
	}
	defer s.stop()
	y, err := newYard(s)
	if err != nil {
		return nil, err
	}
	defer y.clear()
	var failed error
	for _, part := range []struct {
		name, only string
		measure    func(context.Context, *serving) error
	}{{"cold start", onlyStarts, y.coldStart}, {"gateway beside nginx", onlyGateway, y.speed}, {"idle endpoints", onlyIdle, y.idle}} {
		if !slices.Contains([]string{"", onlyItself, onlyServing, part.only}, only) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, partLimit)
		err := part.measure(limited, out)
		cancel()
		if err != nil {
			out.leftOut = append(out.leftOut, fmt.Sprintf("%s, broken off: %v", part.name, strings.ReplaceAll(lastLine(err.Error()), "|", "/")))
			failed = errors.Join(failed, fmt.Errorf("%s: %w; the server's log: %s", part.name, err, s.tail()))
		}
	}
	return out, failed
}

// yard is a server and the files of what it serves.
type yard struct {
	*server
	files string
	self  string // this program
}

func newYard(s *server) (*yard, error) {
	y := &yard{server: s, files: filepath.Join(s.dir, "files")}
	var err error
	if y.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { // nginx and replicas may be other users'
		return nil, err
	}
	return y, os.Mkdir(y.files, 0o755)
}

// clear ends what replicas and nodes are left: like all work, they outlive their server.
func (y *yard) clear() {
	y.halt()
	for _, pid := range processesIn(y.dir) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended by itself
		}
	}
}

// processesIn are the processes that work in a folder, or have it in their command line.
func processesIn(dir string) []int {
	var out []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, err := strconv.Atoi(filepath.Base(p))
		cwd, _ := os.Readlink(filepath.Join(p, "cwd"))
		words, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if err == nil && pid != os.Getpid() && (strings.HasPrefix(cwd, dir+"/") || strings.Contains(string(words), dir+"/")) {
			out = append(out, pid)
		}
	}
	return out
}

// write makes a file and returns its path.
func (y *yard) write(name, text string) (string, error) {
	path := filepath.Join(y.files, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// writeAll makes several.
func (y *yard) writeAll(files map[string]string) error {
	for name, text := range files {
		if _, err := y.write(name, text); err != nil {
			return err
		}
	}
	return nil
}

// deploy makes a deployment of a file's text, with the flags given, and waits until it serves.
func (y *yard) deploy(ctx context.Context, name, text string, flags ...string) error {
	path, err := y.write(name+".yml", text)
	if err != nil {
		return err
	}
	return y.cli(ctx, append([]string{"online-deployment", "create", "-f", path, "-o", "none", "--only-show-errors"}, flags...)...)
}

// address is an endpoint's scoring URL and key.
func (y *yard) address(ctx context.Context, endpoint string) (url, key string, err error) {
	c, err := y.client()
	if err != nil {
		return "", "", err
	}
	data, err := c.Get(ctx, "onlineEndpoints", endpoint)
	if err != nil {
		return "", "", err
	}
	var e struct {
		Properties struct {
			ScoringURI string `json:"scoringUri"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return "", "", err
	}
	answer, err := c.Post(ctx, nil, "onlineEndpoints", endpoint, "listKeys")
	if err != nil {
		return "", "", err
	}
	var keys struct {
		Primary string `json:"primaryKey"`
	}
	return e.Properties.ScoringURI, keys.Primary, errors.Join(json.Unmarshal(answer.Body, &keys), nil)
}

// The stand-in for a model server: in the place of Azure's the replica starts this program, which answers at once.
const (
	standIn = `"""Stands in for the Azure inference server: the replica is a program that answers at once."""
import os
import sys

DEFAULT_HOST = "127.0.0.1"


def run():
    port = sys.argv[sys.argv.index("--port") + 1]
    program = os.environ["BENCH_PROGRAM"]
    os.execv(program, [program, "replica", "%s:%s" % (DEFAULT_HOST, port)])
`
	quickYAML = `name: %[2]s
endpoint_name: %[1]s
type: local
code_configuration:
  code: quick
  scoring_script: score.py
environment:
  image: mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference:latest
  conda_file: serve.yml
environment_variables:
  PYTHONPATH: .
  BENCH_PROGRAM: %[3]s
request_settings:
  max_concurrent_requests_per_instance: 256
  request_timeout_ms: 5000
`
)

// quick is the text of a deployment whose replica answers at once.
func (y *yard) quick(endpoint, name string) string {
	return fmt.Sprintf(quickYAML, endpoint, name, y.self)
}

func (y *yard) writeQuick() error {
	return y.writeAll(map[string]string{"quick/score.py": "", "quick/azureml_inference_server_http/__init__.py": "",
		"quick/azureml_inference_server_http/amlserver.py": standIn, "serve.yml": serveConda})
}
