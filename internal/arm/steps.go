package arm

import "github.com/trainyard/trainyard"

// stepView is a step of a pipeline: what it waits for, the job that it becomes, and how it is.
type stepView struct {
	Name   string             `json:"name"`
	Job    string             `json:"job"`
	After  []string           `json:"after,omitempty"`
	Status trainyard.JobState `json:"status"`
	Why    string             `json:"why,omitempty"`
	Start  any                `json:"startTime,omitempty"`
	End    any                `json:"endTime,omitempty"`
}

func stepsOf(j *trainyard.Job, p *trainyard.PipelinePlan) []stepView {
	out := []stepView{}
	for i, s := range p.Steps {
		v := stepView{Name: s.Name, Job: trainyard.StepJob(j.Name, s.Name), After: s.After, Status: trainyard.JobNotStarted}
		if i < len(j.Status.Steps) {
			now := &j.Status.Steps[i]
			v.Status, v.Why, v.Start, v.End = now.State, now.Why, stamp(now.Started), stamp(now.Ended)
		}
		out = append(out, v)
	}
	return out
}
