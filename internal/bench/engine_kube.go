package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeJob is Kubernetes by itself: one Job a job, made through its API, and watched until it is Complete.
type kubeJob struct {
	http  *http.Client
	base  string
	image string
}

// kubeImage is in the nodes of test/engines/kube.
const kubeImage = "trainyard.test/base:1"

func openKube(ctx context.Context, binary string) (*contest, error) {
	file := os.Getenv(kubeConfig)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	plain, err := dialKube(text)
	if err != nil {
		return nil, err
	}
	here, err := facing(plain.base)
	if err != nil {
		return nil, err
	}
	s, err := startServer(ctx, binary, setup{listen: "0.0.0.0:0"})
	if err != nil {
		return nil, err
	}
	c := &contest{plain: plain, server: s}
	server := "https://" + here + s.url[strings.LastIndexByte(s.url, ':'):]
	err = s.cli(ctx, "compute", "attach", "-n", "k8s", "--type", "kubernetes", "--kubeconfig", file, "--server-url", server, "--set", "image="+kubeImage, "-o", "none")
	if err != nil {
		return c, err
	}
	k8s, err := s.through(ctx, "k8s", kubeImage)
	if err != nil {
		return c, err
	}
	_, err = k8s.start(ctx, "first") // from now on the server has unpacked what it sends
	c.ours = []entrant{
		{k8s, "Kubernetes, attached", "Kubernetes making the pod; then Trainyard's program for tasks is sent into it, 9 MB, and stages the job there; a plain Job's pod has its account's token as a volume, for which the kubelet takes its time",
			"the kubelet and the runtime, which use all cores to make pods; Trainyard's program for tasks is in a volume there, 9 MB, and asks the server for the job; `true` is seen to have ended when its pod has, and a plain Job when Kubernetes has counted it"},
	}
	return c, err
}

// dialKube connects as a kubeconfig says.
func dialKube(kubeconfig []byte) (*kubeJob, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	h, err := rest.HTTPClientFor(cfg)
	return &kubeJob{http: h, base: cfg.Host, image: kubeImage}, err
}

// facing is this computer's address as seen from a server.
func facing(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	conn, err := net.Dial("udp", u.Host) // sends nothing
	if err != nil {
		return "", err
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}

// call makes a request and returns the body of an answer that is none of an error.
func (k *kubeJob) call(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, k.base+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := k.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res.Body, nil
	}
	defer res.Body.Close()
	words, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
	return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, words)
}

// do is call for when the answer does not matter.
func (k *kubeJob) do(ctx context.Context, method, path string, body any) error {
	r, err := k.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

type object = map[string]any

const kubeJobs = "/apis/batch/v1/namespaces/default/jobs"

// submit makes a Job with the resources that Trainyard's default instance type has.
func (k *kubeJob) submit(ctx context.Context, group, name, text string) error {
	labels := object{"bench": group}
	return k.do(ctx, http.MethodPost, kubeJobs, object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": name, "labels": labels},
		"spec": object{"backoffLimit": 0, "template": object{"metadata": object{"labels": labels}, "spec": object{"restartPolicy": "Never", "containers": []object{{
			"name": "main", "image": k.image, "command": []string{"bash", "-c", text},
			"resources": object{"requests": object{"cpu": "100m", "memory": "2Gi"}, "limits": object{"cpu": "2", "memory": "2Gi"}}}}}}}})
}

// complete watches the Jobs of a group until n are.
func (k *kubeJob) complete(ctx context.Context, group string, n int) error {
	r, err := k.call(ctx, http.MethodGet, kubeJobs+"?watch=1&labelSelector="+url.QueryEscape("bench="+group), nil)
	if err != nil {
		return err
	}
	defer r.Close()
	done := map[string]bool{}
	for in := json.NewDecoder(r); len(done) < n; {
		var e struct {
			Object struct {
				Metadata struct{ Name string }
				Status   struct {
					Conditions []struct{ Type, Status, Message string }
				}
			}
		}
		if err := in.Decode(&e); err != nil {
			return err
		}
		for _, c := range e.Object.Status.Conditions {
			if c.Type == "Failed" && c.Status == "True" {
				return fmt.Errorf("job %s: %s", e.Object.Metadata.Name, c.Message)
			}
			if c.Type == "Complete" && c.Status == "True" {
				done[e.Object.Metadata.Name] = true
			}
		}
	}
	return nil
}

func (k *kubeJob) start(ctx context.Context, name string) (time.Duration, error) {
	at := time.Now()
	if err := k.submit(ctx, name, name, sayTime); err != nil {
		return 0, err
	}
	if err := k.complete(ctx, name, 1); err != nil {
		return 0, err
	}
	text, err := k.log(ctx, name)
	if err != nil {
		return 0, err
	}
	began, err := stamp(text)
	return began.Sub(at), errors.Join(err, k.clear(ctx, name))
}

// log is what the pod of a Job printed.
func (k *kubeJob) log(ctx context.Context, name string) (string, error) {
	r, err := k.call(ctx, http.MethodGet, "/api/v1/namespaces/default/pods?labelSelector="+url.QueryEscape("bench="+name), nil)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var pods struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.NewDecoder(r).Decode(&pods); err != nil {
		return "", err
	}
	if len(pods.Items) != 1 {
		return "", fmt.Errorf("job %s has %d pods", name, len(pods.Items))
	}
	said, err := k.call(ctx, http.MethodGet, "/api/v1/namespaces/default/pods/"+pods.Items[0].Metadata.Name+"/log", nil)
	if err != nil {
		return "", err
	}
	defer said.Close()
	text, err := io.ReadAll(said)
	return string(text), err
}

// clear deletes the Jobs of a group with their pods.
func (k *kubeJob) clear(ctx context.Context, group string) error {
	return k.do(ctx, http.MethodDelete, kubeJobs+"?labelSelector="+url.QueryEscape("bench="+group), object{"propagationPolicy": "Background"})
}

func (k *kubeJob) many(ctx context.Context, name, work string, n int) (time.Duration, error) {
	at := time.Now()
	err := atOnce(n, func(i int) error { return k.submit(ctx, name, fmt.Sprintf("%s-%d", name, i), work) })
	if err == nil {
		err = k.complete(ctx, name, n)
	}
	took := time.Since(at)
	return took, errors.Join(err, k.clear(ctx, name))
}
