package studio

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// deploymentView is a deployment on its endpoint's page.
type deploymentView struct {
	Name, ID, Description string
	Class                 string // of its colour in the bars
	State                 state
	Part                  string // "90 % of the traffic"
	Why, Code             string // the reason, where there is something to say
	Said                  string // the end of a log that the reason quotes
	Bad                   bool
	Since                 moment
	Warnings              []string
	Ready, Wanted         int
	WantedWhy             string
	Rows                  []replicaRow
	Numbers               *numbersView
	Facts                 []fact
	Tags                  []fact
}

// replicaRow is one replica.
type replicaRow struct {
	Name, URL, Node, Why string
	State                state
	Since                moment
	Generation           int // 0 where all are of one
	Memory, Peak, CPU    string
	GPU                  string // "" where that is not known
	Killed               string // "2 processes were ended for want of memory"
}

func (d *door) deploymentsView(v *visit, e *trainyard.OnlineEndpoint, deps []*trainyard.OnlineDeployment) deploymentsView {
	out := deploymentsView{Name: e.Name}
	counts, counted := d.traffic.look(v.now)
	for i, dep := range deps {
		w := deploymentOf(v, e, dep)
		w.Class = deploymentColor(i)
		if counted {
			w.Numbers = counts.numbers(dep.Endpoint, dep.Name, e.Spec.Traffic[dep.Name]+e.Spec.MirrorTraffic[dep.Name] > 0)
		}
		out.List = append(out.List, w)
	}
	return out
}

func deploymentOf(v *visit, e *trainyard.OnlineEndpoint, d *trainyard.OnlineDeployment) deploymentView {
	s := &d.Status
	w := deploymentView{Name: d.Name, ID: deploymentID(d.Name), Description: d.Spec.Description, State: deploymentState(d), Part: "no traffic",
		Warnings: s.Warnings, Ready: readyOf(d), Wanted: s.Wanted, WantedWhy: s.WantedWhy.Message, Facts: deploymentFacts(v, d)}
	if p := e.Spec.Traffic[d.Name]; p > 0 {
		w.Part = itoa(p) + " % of the traffic"
	} else if p := e.Spec.MirrorTraffic[d.Name]; p > 0 {
		w.Part = "copies of " + itoa(p) + " % of the calls"
	}
	if s.State != trainyard.DeploymentSucceeded || w.Ready < w.Wanted {
		w.Why, w.Code, w.Since, w.Bad = s.Reason.Message, s.Reason.Code, momentOf(v.now, s.Reason.Since), s.State == trainyard.DeploymentFailed
		w.Why, w.Said, _ = strings.Cut(w.Why, "\n") // what follows is the log
	}
	several := slices.ContainsFunc(s.Replicas, func(r trainyard.ReplicaStatus) bool { return r.Generation != s.Replicas[0].Generation })
	for _, r := range s.Replicas {
		w.Rows = append(w.Rows, replicaOf(v, &r, several))
	}
	for _, k := range sortedKeys(d.Tags) {
		w.Tags = append(w.Tags, fact{Name: k, Words: d.Tags[k]})
	}
	return w
}

func replicaOf(v *visit, r *trainyard.ReplicaStatus, several bool) replicaRow {
	row := replicaRow{Name: r.Name, URL: v.jobLink(r.Name), Node: string(r.Node), Why: r.Reason, State: replicaState(r.State), Since: momentOf(v.now, r.Since)}
	if several {
		row.Generation = r.Generation
	}
	if !r.Measured.IsZero() {
		row.Memory, row.CPU = memory(r.MemoryMB), strconv.FormatFloat(r.CPU, 'f', 0, 64)+" %"
		if r.GPU != nil {
			row.GPU = strconv.FormatFloat(*r.GPU, 'f', 0, 64) + " % of its GPUs"
		}
		if r.PeakMB > r.MemoryMB {
			row.Peak = "at most " + memory(r.PeakMB)
		}
	}
	if n := r.OOMKills; n == 1 {
		row.Killed = "1 process was ended for want of memory"
	} else if n > 1 {
		row.Killed = itoa(n) + " processes were ended for want of memory"
	}
	return row
}

// replicaState is a replica's own state, or that of its job.
func replicaState(s string) state {
	switch s {
	case replicaReady:
		return state{"good", s}
	case "Unready":
		return state{"bad", s}
	case "Loading":
		return state{"waiting", s}
	}
	w := jobState(trainyard.JobState(s))
	if trainyard.JobState(s) == trainyard.JobCancelRequested || trainyard.JobState(s) == trainyard.JobCanceled {
		w.Words = "Stopping"
	}
	return w
}

// memory is an amount as people say it.
func memory(mb int64) string {
	if mb >= 10_000 {
		return strconv.FormatFloat(float64(mb)/1024, 'f', 1, 64) + " GB"
	}
	return strconv.FormatInt(mb, 10) + " MB"
}

// deploymentFacts is what a deployment is made of, without what is empty.
func deploymentFacts(v *visit, d *trainyard.OnlineDeployment) []fact {
	s := &d.Spec
	facts := []fact{modelFact(v, s.Model)}
	if c := s.CodeConfiguration; c != nil {
		facts = append(facts, fact{Name: "Script", Words: c.ScoringScript})
	}
	plan := cmp.Or(d.Status.Live, d.Status.Next)
	facts = append(facts, environmentFacts(s, plan)...)
	facts = append(facts, fact{Name: "Runs as", Words: strings.Join(present(serveWords(s.EndpointComputeType), s.InstanceType), ", ")})
	if plan != nil && plan.Plan.Compute != "" {
		facts = append(facts, fact{Name: "Compute", Words: plan.Plan.Compute, URL: v.computeLink(plan.Plan.Compute)})
	}
	facts = append(facts, fact{Name: "Scaling", Words: scalingWords(d)})
	if plan != nil && plan.Plan.Serve != nil {
		serve := plan.Plan.Serve
		facts = append(facts, fact{Name: "At once", Words: count(serve.Concurrency, "request") + " a replica"},
			fact{Name: "Time limits", Words: long(serve.Timeout) + " for an answer, " + long(serve.Queue) + " in the queue"})
	}
	created := momentOf(v.now, d.Created)
	by := ""
	if d.CreatedBy != "" {
		by = " by " + d.CreatedBy
	}
	facts = append(facts, fact{Name: "Created", Words: created.Words + by, Title: created.Exact})
	if d.Status.Generation > 1 {
		facts = append(facts, fact{Name: "Generation", Words: itoa(d.Status.Generation)})
	}
	if d.Status.PeakMB > 0 {
		facts = append(facts, fact{Name: "Peak memory", Words: memory(d.Status.PeakMB) + " of one replica"})
	}
	return slices.DeleteFunc(facts, func(f fact) bool { return f.Words == "" })
}

// modelFact names a model and leads to it. One that came with the deployment's file has no page.
func modelFact(v *visit, ref string) fact {
	id, err := trainyard.ParseID(ref)
	switch {
	case err != nil:
		return fact{Name: "Model", Words: ref}
	case anonymous(id.Name):
		return fact{Name: "Model", Words: "from the deployment's file", Title: id.Name + ":" + id.Version}
	}
	return fact{Name: "Model", Words: id.Name + ":" + id.Version, URL: v.link("/models/" + escapePath(id.Name))}
}

func environmentFacts(s *trainyard.DeploymentSpec, plan *trainyard.ReplicaPlan) []fact {
	f := fact{Name: "Environment", Words: s.EnvironmentID}
	if id, err := trainyard.ParseID(s.EnvironmentID); err == nil {
		if f.Words = id.Name + ":" + cmp.Or(id.Version, id.Label); anonymous(id.Name) {
			f.Words, f.Title = "from the deployment's file", id.Name+":"+id.Version
		}
	}
	if plan == nil || plan.Plan.Environment == nil {
		return []fact{f}
	}
	return []fact{f, {Name: "Image", Words: plan.Plan.Environment.Image}}
}

// anonymous says whether a name was given by a client to what its user did not name.
func anonymous(name string) bool { return strings.HasPrefix(name, "CliV2Anonymous") }

// serveWords is where a deployment runs, in words.
func serveWords(kind string) string {
	switch kind {
	case trainyard.ServeManaged:
		return "managed nodes"
	case trainyard.ServeKubernetes:
		return "a Kubernetes deployment"
	case trainyard.ServeCompute:
		return "a process or a container on a compute"
	case trainyard.ServeContainer:
		return "a container on the server's computer"
	case trainyard.ServeLocal:
		return "a process on the server's computer"
	}
	return kind
}

// scalingWords is how many replicas a deployment may have.
func scalingWords(d *trainyard.OnlineDeployment) string {
	s := d.Spec.ScaleSettings
	if s == nil || s.ScaleType != "TargetUtilization" {
		return "always " + count(d.Instances, "replica")
	}
	low, high := 1, d.Instances
	if s.MinInstances != nil {
		low = *s.MinInstances
	}
	if s.MaxInstances != nil {
		high = *s.MaxInstances
	}
	return itoa(low) + " to " + count(max(low, high), "replica") + " by " + cmp.Or(strings.ToLower(s.Metric), "concurrency")
}

// present are the words that are not empty.
func present(words ...string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}
