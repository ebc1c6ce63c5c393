package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/rightsize"
)

// What a profile does on the server: all of it below one endpoint of its own.

// open makes the endpoint.
func (p *profiler) open(ctx context.Context) error {
	body := map[string]any{"location": p.rep.Location, "tags": map[string]string{"temporary": "made by trainyard model profile"}, "properties": map[string]any{"authMode": trainyard.AuthKey}}
	ans, err := p.c.Put(ctx, body, endpointsPath, p.endpoint)
	if err != nil {
		return err
	}
	if err := p.c.Wait(ctx, ans, nil); err != nil {
		return err
	}
	e, err := onlineEndpointOf(ctx, p.c, p.endpoint)
	if err != nil {
		return err
	}
	p.uri = text(e, "scoring_uri")
	p.key, err = credential(ctx, p.c, e)
	return err
}

// clean deletes the endpoint and all below it, also when ctx is done already.
func (p *profiler) clean(ctx context.Context) error {
	if ctx.Err() != nil {
		p.app.note("deleting the temporary endpoint %s; Ctrl-C again leaves it there", p.endpoint)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	ans, err := p.c.Delete(ctx, url.Values{}, endpointsPath, p.endpoint)
	if err == nil {
		err = p.c.Wait(ctx, ans, nil)
	}
	if trainyard.IsNotFound(err) {
		return nil
	}
	return err
}

// serve deploys the model on a size and waits until it answers the sample request.
func (p *profiler) serve(ctx context.Context, name string, size rightsize.Size, instances int, set trainyard.RequestSettings) error {
	s := p.dep.Spec
	s.EndpointComputeType, s.InstanceType, s.RequestSettings = trainyard.ServeManaged, size.Name, &set
	s.Compute, s.ScaleSettings, s.DataCollector, s.ContainerResources = "", nil, nil, nil
	body := map[string]any{"location": p.rep.Location, "properties": s, "sku": map[string]any{"name": "Default", "capacity": instances}}
	p.deployment = name
	ans, err := p.c.Put(ctx, body, endpointsPath, p.endpoint, "deployments", name)
	if err != nil {
		return err
	}
	start := p.app.now()
	err = p.c.Wait(ctx, ans, func(client.Operation) {
		if now, err := p.look(ctx); err == nil {
			p.app.status("%s: %s … %s", size.Name, now.Reason.Message, long(p.app.now().Sub(start)))
		}
	})
	p.app.done()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(routedWithin)
	for { // the gateway hears of it a moment later
		err := p.send(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// drop deletes the deployment that was asked last, so that the next one has its room.
func (p *profiler) drop(ctx context.Context) error {
	ans, err := p.c.Delete(ctx, url.Values{}, endpointsPath, p.endpoint, "deployments", p.deployment)
	if err == nil {
		err = p.c.Wait(ctx, ans, nil)
	}
	if trainyard.IsNotFound(err) {
		return nil
	}
	return err
}

// send asks the deployment once.
func (p *profiler) send(ctx context.Context) error {
	header := http.Header{"Content-Type": {p.contentType}, "Accept": {"*/*"}, "Authorization": {"Bearer " + p.key}, "Azureml-Model-Deployment": {p.deployment}}
	res, err := p.c.Score(ctx, p.uri, header, bytes.NewReader(p.body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 == 2 {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	data, _ := io.ReadAll(io.LimitReader(res.Body, 300)) // what was read of it is enough to report it
	_, _ = io.Copy(io.Discard, res.Body)
	return fmt.Errorf("%s %s", res.Status, clean(string(data)))
}

// servingNow is what a profile reads of its deployment.
type servingNow struct {
	PeakMB      int64                     `json:"peakMemoryMB"`
	OutOfMemory int                       `json:"outOfMemory"`
	Reason      trainyard.Reason          `json:"reason"`
	Replicas    []trainyard.ReplicaStatus `json:"replicas"`
}

// outOfMemory says whether a replica, or one of its processes, was ended because there was no memory left.
func (s *servingNow) outOfMemory() bool {
	return s.OutOfMemory > 0 || s.Reason.Code == string(trainyard.ClassOutOfMemory)
}

func (s *servingNow) cpu() float64 {
	most := 0.0
	for _, r := range s.Replicas {
		most = max(most, r.CPU)
	}
	return most
}

func (s *servingNow) measured() time.Time {
	var last time.Time
	for _, r := range s.Replicas {
		if r.Measured.After(last) {
			last = r.Measured
		}
	}
	return last
}

func (p *profiler) look(ctx context.Context) (servingNow, error) {
	var e struct{ Properties servingNow }
	raw, err := p.c.Get(ctx, endpointsPath, p.endpoint, "deployments", p.deployment)
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	return e.Properties, err
}

// settled looks once the replicas have been measured after all that they were sent.
func (p *profiler) settled(ctx context.Context) (servingNow, error) {
	now, err := p.look(ctx)
	before, deadline := now.measured(), time.Now().Add(measuredWithin)
	for err == nil && !now.outOfMemory() && len(now.Replicas) > 0 && !now.measured().After(before) && time.Now().Before(deadline) {
		p.app.status("waiting for %s to be measured", p.deployment)
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		now, err = p.look(ctx)
	}
	if err == nil && now.PeakMB == 0 && len(now.Replicas) > 0 {
		return now, trainyard.Errorf(trainyard.CodeUnsupported, "the nodes of this location do not say how much memory a replica uses; choose another with --location")
	}
	return now, err
}
