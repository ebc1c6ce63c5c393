package store

import (
	"bytes"
	"maps"
	"slices"

	"github.com/trainyard/trainyard"
)

// What is handed in and out is copied to the last map, so that no caller can change what is true by changing what it holds.

func cloneJob(j *trainyard.Job) *trainyard.Job {
	c := *j
	c.Spec, c.Plan, c.Status = cloneSpec(j.Spec), clonePlan(j.Plan), cloneStatus(j.Status)
	return &c
}

func cloneSpec(s trainyard.JobSpec) trainyard.JobSpec {
	s.Inputs, s.Outputs = cloneEach(s.Inputs), cloneEach(s.Outputs)
	s.EnvironmentVariables, s.Tags, s.Properties = maps.Clone(s.EnvironmentVariables), maps.Clone(s.Tags), maps.Clone(s.Properties)
	s.Distribution, s.Limits, s.QueueSettings = clonePointer(s.Distribution), clonePointer(s.Limits), clonePointer(s.QueueSettings)
	if s.Resources = clonePointer(s.Resources); s.Resources != nil {
		s.Resources.Locations = slices.Clone(s.Resources.Locations)
		s.Resources.Properties = bytes.Clone(s.Resources.Properties)
	}
	s.Identity, s.Services, s.Extra = bytes.Clone(s.Identity), maps.Clone(s.Services), maps.Clone(s.Extra)
	return s
}

func clonePlan(p trainyard.JobPlan) trainyard.JobPlan {
	p.Environment = clonePointer(p.Environment)
	p.Inputs, p.Outputs = maps.Clone(p.Inputs), maps.Clone(p.Outputs)
	if p.Pipeline = clonePointer(p.Pipeline); p.Pipeline != nil {
		p.Pipeline.Steps = slices.Clone(p.Pipeline.Steps)
		for i := range p.Pipeline.Steps {
			p.Pipeline.Steps[i].Spec = cloneSpec(p.Pipeline.Steps[i].Spec)
		}
	}
	return p
}

func cloneStatus(s trainyard.JobStatus) trainyard.JobStatus {
	s.Attempts = slices.Clone(s.Attempts)
	for i := range s.Attempts {
		a := &s.Attempts[i]
		a.Tasks = slices.Clone(a.Tasks)
		for k := range a.Tasks {
			a.Tasks[k].Result, a.Tasks[k].Spans = clonePointer(a.Tasks[k].Result), slices.Clone(a.Tasks[k].Spans)
		}
	}
	s.Timeline, s.Warnings = slices.Clone(s.Timeline), slices.Clone(s.Warnings)
	s.Steps = slices.Clone(s.Steps)
	s.ExitCode, s.Failure = clonePointer(s.ExitCode), clonePointer(s.Failure)
	return s
}

func cloneCompute(c *trainyard.Compute) *trainyard.Compute {
	n := *c
	n.Tags, n.Warnings, n.Errors = maps.Clone(c.Tags), slices.Clone(c.Warnings), slices.Clone(c.Errors)
	n.Engines = slices.Clone(c.Engines)
	n.Identity, n.Sku, n.Secret = bytes.Clone(c.Identity), bytes.Clone(c.Sku), bytes.Clone(c.Secret)
	n.Spec.Extra = maps.Clone(c.Spec.Extra)
	p := &n.Spec.Properties
	p.ScaleSettings, p.EnableNodePublicIP, p.Extra = clonePointer(p.ScaleSettings), clonePointer(p.EnableNodePublicIP), maps.Clone(p.Extra)
	p.Subnet, p.UserAccountCredentials = bytes.Clone(p.Subnet), bytes.Clone(p.UserAccountCredentials)
	return &n
}

func cloneResource(r *trainyard.Resource) *trainyard.Resource {
	c := *r
	c.Tags = maps.Clone(r.Tags)
	c.Properties, c.Identity, c.Sku, c.Secret = bytes.Clone(r.Properties), bytes.Clone(r.Identity), bytes.Clone(r.Sku), bytes.Clone(r.Secret)
	return &c
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func cloneEach[T any](m map[string]*T) map[string]*T {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = clonePointer(v)
	}
	return c
}
