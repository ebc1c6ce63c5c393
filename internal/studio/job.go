package studio

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// nodesNamed are the nodes of an attempt that are named.
const nodesNamed = 3

// eventsAtMost are shown of what happened to a job: its last.
const eventsAtMost = 200

type jobPage struct {
	frame
	Job   jobView
	Log   logView
	Files []fileGroup
}

// jobView is what changes while a job lives, and what does not, in one: it is drawn in parts.
type jobView struct {
	Name, Display, URL, Description string
	State                           state
	Over                            bool
	Bad                             bool   // Why is a failure
	Why                             string // the reason, in words
	Code                            string // class of a failure, or code of a reason
	Position                        int    // in its queue
	Since                           moment // of the state
	Took                            lasting
	Exit                            string
	Cancel                          string // where to send the form; "" for those who may not, and when it is over
	Warnings                        []string
	Timeline                        timelineView
	Steps                           stepsView
	Parent                          fact // the pipeline whose step it is
	Attempts                        []attemptRow
	Facts                           []fact
	Command                         string
	Inputs, Outputs                 []port
	Tags                            []fact
	Events                          []eventRow
}

// fact is a name with what it is; URL makes it a link.
type fact struct{ Name, Words, URL, Title string }

// port is an input or an output.
type port struct{ Name, Type, Mode, Where string }

type attemptRow struct {
	Number  int
	Nodes   string
	Placed  moment
	Took    lasting
	State   state
	Message string
}

type eventRow struct {
	When               moment
	What, Who, Message string
}

func (d *door) showJob(v *visit) error {
	j, err := d.Jobs.Job(v.Context(), v.scope, v.PathValue("name"))
	if err != nil {
		return err
	}
	job, err := d.jobView(v, j)
	if err != nil {
		return err
	}
	p := jobPage{frame: d.frame(v, job.State.Words+" · "+cmp.Or(job.Display, job.Name), "jobs"), Job: job}
	if p.Log, err = d.logView(v, j); err != nil {
		return err
	}
	if p.Files, err = d.filesOf(v, j); err != nil {
		return err
	}
	if !job.Over {
		follow := v.URL.Query().Get("log")
		if p.Log.Fixed {
			follow = followNone
		}
		p.Live = v.link("/studio/live/jobs/"+escapePath(j.Name), "log", follow)
	}
	return d.show(v.w, http.StatusOK, "job", p)
}

func (d *door) cancelJob(v *visit) error {
	name := v.PathValue("name")
	if _, err := d.Jobs.Job(v.Context(), v.scope, name); err != nil {
		return err
	}
	if err := d.Jobs.CancelJob(v.Context(), v.who, v.scope, name); err != nil {
		return err
	}
	http.Redirect(v.w, v.Request, v.jobLink(name), http.StatusSeeOther)
	return nil
}

func (d *door) jobView(v *visit, j *trainyard.Job) (jobView, error) {
	s := &j.Status
	w := jobView{Name: j.Name, URL: v.jobLink(j.Name), Description: j.Spec.Description, State: jobState(s.State), Over: s.State.Terminal(),
		Why: s.Reason.Message, Code: s.Reason.Code, Since: momentOf(v.now, s.Reason.Since), Warnings: s.Warnings, Command: j.Spec.Command,
		Timeline: timelineOf(j, v.now), Steps: stepsOf(v, j), Attempts: attemptsOf(v, j), Facts: factsOf(v, j), Inputs: inputsOf(j), Outputs: outputsOf(j)}
	if j.Spec.DisplayName != j.Name {
		w.Display = j.Spec.DisplayName
	}
	if j.Plan.Parent != "" {
		w.Parent = fact{Name: "Pipeline", Words: j.Plan.Parent, URL: v.jobLink(j.Plan.Parent)}
	}
	if w.Steps.Rows != nil {
		w.Timeline = timelineView{} // its steps are its time
	}
	w.Took = lastingOf(v.now, cmpTime(s.Started, j.Created), s.Ended)
	if s.ExitCode != nil {
		w.Exit = itoa(*s.ExitCode)
	}
	if f := s.Failure; f != nil && w.Over {
		w.Why, w.Code, w.Bad = cmp.Or(f.Message, w.Why), string(f.Class), s.State == trainyard.JobFailed
	}
	if s.State == trainyard.JobCompleted || s.State == trainyard.JobRunning && s.Reason.SaysItRuns() {
		w.Why = "" // the state says it
	}
	if s.State == trainyard.JobQueued {
		at, err := d.Jobs.JobPosition(v.Context(), v.scope, j.Name)
		if err != nil && !trainyard.IsNotFound(err) {
			return w, err
		}
		w.Position = at
	}
	if !w.Over && s.State != trainyard.JobCancelRequested && v.may(identity.Act, trainyard.KindJob, j.Name) == nil {
		w.Cancel = v.link("/jobs/" + escapePath(j.Name) + "/cancel")
	}
	for _, k := range sortedKeys(j.Spec.Tags) {
		w.Tags = append(w.Tags, fact{Name: k, Words: j.Spec.Tags[k], URL: v.link("/jobs", "tag", k+"="+j.Spec.Tags[k])})
	}
	events, err := d.Jobs.JobEvents(v.Context(), v.scope, j.Name, 0)
	if err != nil {
		return w, err
	}
	for _, e := range events[max(len(events)-eventsAtMost, 0):] {
		w.Events = append(w.Events, eventRow{momentOf(v.now, e.Time), e.What, e.Who, e.Message})
	}
	return w, nil
}

func cmpTime(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// attemptsOf lists the tries of a job, the last first.
func attemptsOf(v *visit, j *trainyard.Job) []attemptRow {
	var rows []attemptRow
	for _, a := range slices.Backward(j.Status.Attempts) {
		r := attemptRow{Number: a.Number, Placed: momentOf(v.now, a.Placed), Took: lastingOf(v.now, a.Placed, a.Ended)}
		var nodes []string
		var last trainyard.TaskState
		for i := range a.Tasks {
			t := &a.Tasks[i]
			nodes, last = append(nodes, string(t.Node)), t.State
			if t.Result != nil && t.Result.Message != "" && (r.Message == "" || t.Result.Class == a.Class) {
				r.Message = t.Result.Message
			}
			if r.Message == "" && t.State != trainyard.TaskEnded {
				r.Message = cmp.Or(t.Away, t.Progress)
			}
		}
		if more := len(nodes) - nodesNamed; more > 0 {
			nodes = append(nodes[:nodesNamed], "and "+itoa(more)+" more")
		}
		r.Nodes = strings.Join(nodes, ", ")
		r.State = attemptState(a.Class, last)
		rows = append(rows, r)
	}
	return rows
}

func attemptState(class trainyard.Class, last trainyard.TaskState) state {
	switch class {
	case "":
		if last == trainyard.TaskRunning {
			return state{"busy", string(last)}
		}
		return state{"waiting", string(last)}
	case trainyard.ClassOK:
		return state{"good", "OK"}
	case trainyard.ClassCanceled:
		return state{"off", string(class)}
	}
	return state{"bad", string(class)}
}

// factsOf is what was asked for, without what is empty.
func factsOf(v *visit, j *trainyard.Job) []fact {
	s, p := &j.Spec, &j.Plan
	created := momentOf(v.now, j.Created)
	facts := []fact{{Name: "Compute", Words: p.Compute}, {Name: "Experiment", Words: s.ExperimentName, URL: v.link("/jobs", "q", s.ExperimentName)}}
	if p.Compute != "" {
		facts[0].URL = v.computeLink(p.Compute)
	}
	if p.Parent != "" {
		facts = append(facts, fact{Name: "Step of", Words: p.Parent, URL: v.jobLink(p.Parent)})
	}
	if p.Serve != nil { // a replica
		facts = append(facts, fact{Name: "Endpoint", Words: p.Serve.Endpoint, URL: v.endpointLink(p.Serve.Endpoint) + "#" + deploymentID(p.Serve.Deployment)})
	}
	if p.Nodes > 1 || p.Processes > 1 {
		words := count(max(p.Nodes, 1), "node")
		if p.Processes > 1 {
			words += " with " + itoa(p.Processes) + " processes each"
		}
		facts = append(facts, fact{Name: "Size", Words: words})
	}
	if s.Distribution != nil {
		facts = append(facts, fact{Name: "Distribution", Words: s.Distribution.DistributionType})
	}
	if p.Environment != nil {
		facts = append(facts, fact{Name: "Environment", Words: p.Environment.Name}, fact{Name: "Image", Words: p.Environment.Image})
	}
	if p.Timeout > 0 {
		facts = append(facts, fact{Name: "Time limit", Words: long(p.Timeout)})
	}
	by := ""
	if j.CreatedBy != "" {
		by = " by " + j.CreatedBy
	}
	facts = append(facts, fact{Name: "Created", Words: created.Words + by, Title: created.Exact}, fact{Name: "Canceled by", Words: j.Status.CanceledBy},
		fact{Name: "Name", Words: j.Name})
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Words == "" })
}

func inputsOf(j *trainyard.Job) []port {
	var out []port
	for _, name := range sortedKeys(j.Spec.Inputs) {
		in := j.Spec.Inputs[name]
		if in == nil {
			continue
		}
		p := port{Name: name, Type: in.JobInputType, Mode: in.Mode, Where: in.URI}
		if strings.EqualFold(in.JobInputType, "literal") {
			p.Where = in.Value
		}
		out = append(out, p)
	}
	return out
}

func outputsOf(j *trainyard.Job) []port {
	var out []port
	for _, name := range sortedKeys(j.Plan.Outputs) {
		o := j.Plan.Outputs[name]
		out = append(out, port{Name: name, Type: o.Type, Mode: o.Mode, Where: o.URI})
	}
	return out
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
