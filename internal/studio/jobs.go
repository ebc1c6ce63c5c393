package studio

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	rowsAtMost  = 50               // on a page of a list
	pagesSought = 40               // pages of jobs that are looked through for a text before the next click
	listEvery   = 15 * time.Second // a list is drawn anew at least this often: places in queues change without a job's changing
)

// jobStates are those that a list can be narrowed to, in the order of a job's life.
var jobStates = []trainyard.JobState{trainyard.JobQueued, trainyard.JobPreparing, trainyard.JobRunning, trainyard.JobFinalizing,
	trainyard.JobCancelRequested, trainyard.JobCompleted, trainyard.JobFailed, trainyard.JobCanceled}

// activeWord stands for every state that is not the last.
const activeWord = "active"

type jobsPage struct {
	frame
	State, Compute, Text, Tag string // as asked for
	States, Computes          []choice
	Wsid                      string // to stay in the workspace, when the form is sent
	Untagged                  string // address of the same list without the tag
	List                      jobsList
}

// jobsList is the live part.
type jobsList struct {
	Rows   []jobRow
	Older  string // address of the next page
	Newest string // address of the first page, if this is not it
	Empty  string // what to say when there are no rows
	Fresh  bool   // nothing was ever submitted
}

type jobRow struct {
	Name, Display, URL, Experiment, Compute, ComputeURL string
	State                                               state
	Why                                                 string
	Created                                             moment
	Took                                                lasting
	Waits                                               bool // Took counts from submission
	Parent                                              fact // the pipeline whose step it is
}

// choice is one of a select element.
type choice struct {
	Value, Words string
	Chosen       bool
}

// state is a state as pages show it: a class for its colour, and words.
type state struct{ Class, Words string }

func jobState(s trainyard.JobState) state {
	switch s {
	case "":
		s = trainyard.JobNotStarted
	case trainyard.JobCancelRequested:
		return state{"waiting", "Canceling"}
	}
	return state{stateClass(string(s)), string(s)}
}

// stateClass is the kind of a state, of whatever it is one; each kind has a colour.
func stateClass(s string) string {
	switch strings.ToLower(s) {
	case "completed", "idle", "steady", "ready", "succeeded":
		return "good"
	case "failed", "unusable":
		return "bad"
	case "running":
		return "busy"
	case "queued", "preparing", "finalizing", "creating", "leaving", "resizing", "deleting", "updating", "scaling":
		return "waiting"
	}
	return "off"
}

func (d *door) showJobs(v *visit) error {
	list, err := d.jobsList(v)
	if err != nil {
		return err
	}
	q := v.URL.Query()
	p := jobsPage{frame: d.frame(v, "Jobs", "jobs"), State: q.Get("state"), Compute: q.Get("compute"), Text: q.Get("q"), Tag: q.Get("tag"), List: list}
	if q.Get("wsid") != "" {
		p.Wsid = v.scope.ID()
	}
	p.Untagged = v.link("/jobs", "state", p.State, "compute", p.Compute, "q", p.Text)
	p.Live = v.link("/studio/live/jobs", listQuery(v, q.Get("after"))...)
	p.States = append(p.States, choice{"", "any state", p.State == ""}, choice{activeWord, "not over yet", p.State == activeWord})
	for _, s := range jobStates {
		p.States = append(p.States, choice{string(s), jobState(s).Words, strings.EqualFold(p.State, string(s))})
	}
	if p.Computes, err = d.computeChoices(v, p.Compute); err != nil {
		return err
	}
	return d.show(v.w, http.StatusOK, "jobs", p)
}

func (d *door) computeChoices(v *visit, chosen string) ([]choice, error) {
	all, err := d.Computes.Computes(v.Context(), v.scope)
	if err != nil {
		return nil, err
	}
	out := []choice{{"", "any compute", chosen == ""}}
	found := chosen == ""
	for _, c := range all {
		is := strings.EqualFold(c.Name, chosen)
		found = found || is
		out = append(out, choice{c.Name, c.Name, is})
	}
	if !found { // a compute that is no more has jobs still
		out = append(out, choice{chosen, chosen, true})
	}
	return out, nil
}

// streamJobs keeps a list up to date.
func (d *door) streamJobs(v *visit) error {
	return d.keep(v, listEvery, v.inScope, func(s *stream) error {
		list, err := d.jobsList(v)
		if err != nil {
			return err
		}
		html, err := d.render("jobs-list", list)
		if err != nil {
			return err
		}
		return s.part("jobs-list", html, v.now)
	})
}

// listQuery is the query of a list, for links to another place in the same list.
func listQuery(v *visit, after string) []string {
	q := v.URL.Query()
	return []string{"state", q.Get("state"), "compute", q.Get("compute"), "q", q.Get("q"), "tag", q.Get("tag"), "after", after}
}

func (d *door) jobsList(v *visit) (jobsList, error) {
	q := v.URL.Query()
	ask := trainyard.JobQuery{Scope: v.scope, Compute: q.Get("compute"), Tag: q.Get("tag"), Top: rowsAtMost, After: q.Get("after")}
	switch s := q.Get("state"); {
	case s == activeWord:
		ask.States = slices.DeleteFunc(slices.Clone(jobStates), trainyard.JobState.Terminal)
	case s != "":
		i := slices.IndexFunc(jobStates, func(j trainyard.JobState) bool { return strings.EqualFold(string(j), s) })
		if i < 0 {
			return jobsList{}, trainyard.Invalid("%q is not a state of jobs", s)
		}
		ask.States = jobStates[i : i+1]
	}
	// Steps are seen on the page of their pipeline; a list that looks for jobs finds them, too.
	sought := strings.ToLower(strings.TrimSpace(q.Get("q")))
	everything := ask.Compute == "" && ask.Tag == "" && ask.States == nil && sought == ""
	jobs, next, err := d.jobsLike(v.Context(), ask, func(j *trainyard.Job) bool {
		words := strings.ToLower(j.Name + "\n" + j.Spec.DisplayName + "\n" + j.Spec.ExperimentName + "\n" + j.Spec.Description)
		return strings.Contains(words, sought) && !(everything && j.Plan.Parent != "")
	})
	if err != nil {
		return jobsList{}, err
	}
	var list jobsList
	for _, j := range jobs {
		list.Rows = append(list.Rows, rowOf(v, j))
	}
	if next != "" {
		list.Older = v.link("/jobs", listQuery(v, next)...)
	}
	if ask.After != "" {
		list.Newest = v.link("/jobs", listQuery(v, "")...)
	}
	switch {
	case next != "":
		list.Empty = "No job matches among those looked at; there are older ones."
		if everything {
			list.Empty = "All the jobs looked at are steps of pipelines; there are older ones."
		}
	case ask.After == "" && everything:
		list.Fresh, list.Empty = len(jobs) == 0, "No job was submitted yet."
	default:
		list.Empty = "No job matches."
	}
	return list, nil
}

// jobsLike is a page of jobs that a person wants to see. The store does not know which those are, so pages are looked through until enough
// is found; a page may hold up to twice as many jobs as others, or few and a next one.
func (d *door) jobsLike(ctx context.Context, ask trainyard.JobQuery, wanted func(*trainyard.Job) bool) (found []*trainyard.Job, next string, err error) {
	for range pagesSought {
		page, err := d.Jobs.Jobs(ctx, ask)
		if err != nil {
			return nil, "", err
		}
		for _, j := range page.Items {
			if wanted(j) {
				found = append(found, j)
			}
		}
		if next = page.Next; next == "" || len(found) >= rowsAtMost {
			break
		}
		ask.After = next
	}
	return found, next, nil
}

func rowOf(v *visit, j *trainyard.Job) jobRow {
	s := &j.Status
	r := jobRow{Name: j.Name, URL: v.jobLink(j.Name), Experiment: j.Spec.ExperimentName, Compute: j.Plan.Compute, State: jobState(s.State),
		Why: whyShort(j), Created: momentOf(v.now, j.Created), Took: lastingOf(v.now, s.Started, s.Ended)}
	if j.Spec.DisplayName != j.Name {
		r.Display = j.Spec.DisplayName
	}
	if j.Plan.Parent != "" {
		r.Parent = fact{Words: j.Plan.Parent, URL: v.jobLink(j.Plan.Parent)}
	}
	if p := j.Plan.Pipeline; p != nil {
		r.Compute = count(len(p.Steps), "step")
	}
	if j.Plan.Compute != "" {
		r.ComputeURL = v.computeLink(j.Plan.Compute)
	}
	if s.Started.IsZero() && !s.State.Terminal() {
		r.Took, r.Waits = lastingOf(v.now, j.Created, time.Time{}), true
	}
	return r
}

// whyShort is what a person should know of a job's state beside its name: why it waits, or what went wrong.
func whyShort(j *trainyard.Job) string {
	switch j.Status.State {
	case trainyard.JobRunning:
		if j.Plan.Pipeline == nil && j.Status.Reason.SaysItRuns() {
			return ""
		}
	case trainyard.JobCompleted:
		return ""
	case trainyard.JobFailed:
		if f := j.Status.Failure; f != nil {
			return cmp.Or(f.Message, j.Status.Reason.Message)
		}
	}
	return j.Status.Reason.Message
}
