package spec

import "github.com/trainyard/trainyard"

// Invocation is what a batch endpoint is invoked with, once every Upload is done.
type Invocation struct {
	Inputs   map[string]*trainyard.JobInput
	Outputs  map[string]*trainyard.JobOutput
	Uploads  []Upload
	Warnings []string
}

// Invocation translates the inputs and outputs of an invocation, which are written as those of a job.
func (d *Document) Invocation(scope trainyard.Scope) (*Invocation, error) {
	f, err := d.reader(BatchInputs)
	if err != nil {
		return nil, err
	}
	f.silent("$schema")
	job := &Job{Spec: &trainyard.JobSpec{}}
	t := jobTranslator{f, scope, d.limit, job}
	t.inputs()
	t.outputs()
	if err := d.end(f); err != nil {
		return nil, err
	}
	return &Invocation{Inputs: job.Spec.Inputs, Outputs: job.Spec.Outputs, Uploads: job.Uploads, Warnings: f.p.notes}, nil
}
