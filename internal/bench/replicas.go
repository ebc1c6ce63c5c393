package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// replicaJob is the job that a replica is.
type replicaJob struct {
	Name       string `json:"name"`
	Properties struct {
		Status   trainyard.JobState `json:"status"`
		Timeline []trainyard.Span   `json:"timeline"`
		Attempts []struct {
			Tasks []struct {
				Serving *trainyard.Serving `json:"serving"`
			} `json:"tasks"`
		} `json:"attempts"`
	} `json:"properties"`
}

func (j *replicaJob) serving() *trainyard.Serving {
	if n := len(j.Properties.Attempts); n > 0 && len(j.Properties.Attempts[n-1].Tasks) > 0 {
		return j.Properties.Attempts[n-1].Tasks[0].Serving
	}
	return nil
}

// address is where it answers, if it is ready.
func (j *replicaJob) address() string {
	if s := j.serving(); s != nil && s.Ready {
		return s.Address
	}
	return ""
}

// replicas lists the replicas of a deployment that there are just now.
func (y *yard) replicas(ctx context.Context, c *client.Client, endpoint, deployment string) iter.Seq2[*replicaJob, error] {
	return func(yield func(*replicaJob, error) bool) {
		query := url.Values{"listViewType": {"All"}, "tag": {"trainyard.replica=" + endpoint + "/" + deployment}}
		for data, err := range c.List(ctx, query, "jobs") {
			j := &replicaJob{}
			if err == nil {
				err = json.Unmarshal(data, j)
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}
}

// watcher keeps what was last seen of a deployment's replica: one that is let go is deleted.
type watcher struct {
	stop  func()
	done  sync.WaitGroup
	last  *replicaJob // ready
	ready time.Time   // when it was first seen to be
}

func (y *yard) watch(ctx context.Context, endpoint, deployment string) (*watcher, error) {
	c, err := y.client()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{stop: stop}
	w.done.Go(func() {
		for ctx.Err() == nil {
			for j, err := range y.replicas(ctx, c, endpoint, deployment) {
				if err != nil || j.address() == "" { // no more is known of it yet
					continue
				}
				if w.last = j; w.ready.IsZero() {
					w.ready = time.Now()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	})
	return w, nil
}

func (w *watcher) end() {
	w.stop()
	w.done.Wait()
}

// untilZero waits until a deployment has no replica.
func (y *yard) untilZero(ctx context.Context, c *client.Client, endpoint, deployment string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		n := 0
		for _, err := range y.replicas(ctx, c, endpoint, deployment) {
			if err != nil {
				return err
			}
			n++
		}
		if n == 0 {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s/%s has not gone to zero: %w", endpoint, deployment, ctx.Err())
		}
	}
}

// score sends a request to a model.
func score(ctx context.Context, address, key string) (http.Header, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"data": [[5.1, 3.5, 1.4, 0.2]]}`))
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return resp.Header, string(body), err
}
