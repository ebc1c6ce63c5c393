package studio

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// endpointsEvery is how often the list is drawn anew: what replicas are ready is told by their nodes, and no change of the store.
const endpointsEvery = 2 * time.Second

type endpointsPage struct {
	frame
	List []endpointRow
}

// endpointRow is an endpoint in the list.
type endpointRow struct {
	Name, URL, Description string
	State                  state
	Shares                 []share
	Deployments            []deploymentLine
	Address, Auth          string
}

// deploymentLine is a deployment in one line.
type deploymentLine struct {
	Name, URL string
	State     state
	Count     string // "1/2": ready, and wanted
	Short     bool   // fewer are ready than wanted
}

// share is a deployment's part of the traffic; X and W draw it, of 1000.
type share struct {
	Name, URL, Class string
	Percent          int
	X, W             string
}

func (d *door) showEndpoints(v *visit) error {
	list, err := d.endpointList(v)
	if err != nil {
		return err
	}
	p := endpointsPage{frame: d.frame(v, "Endpoints", "endpoints"), List: list}
	p.Live = v.link("/studio/live/endpoints")
	return d.show(v.w, http.StatusOK, "endpoints", p)
}

func (d *door) streamEndpoints(v *visit) error {
	return d.keep(v, endpointsEvery, v.movesEndpoints, func(s *stream) error {
		list, err := d.endpointList(v)
		if err != nil {
			return err
		}
		html, err := d.render("endpoints-list", list)
		if err != nil {
			return err
		}
		return s.part("endpoints-list", html, v.now)
	})
}

// movesEndpoints says whether a change may touch what endpoints show: replicas, which are jobs, and what happened to endpoints.
func (v *visit) movesEndpoints(c trainyard.Change) bool {
	return v.inScope(c) || v.tells(c, kindEndpoint) || v.tells(c, kindDeployment)
}

// Kinds of events.
const (
	kindEndpoint   = "endpoint"
	kindDeployment = "deployment"
)

// tells says whether something happened in the workspace to a thing of the kind.
func (v *visit) tells(c trainyard.Change, kind string) bool {
	for _, e := range c.Events {
		if e.Kind == kind && e.Scope.Fold() == v.scope.Fold() {
			return true
		}
	}
	return false
}

func (v *visit) endpointLink(name string) string { return v.link("/endpoints/" + url.PathEscape(name)) }

func (d *door) endpointList(v *visit) ([]endpointRow, error) {
	all, err := d.Endpoints.Endpoints(v.Context(), v.scope)
	if err != nil {
		return nil, err
	}
	var list []endpointRow
	for _, e := range all {
		deps, err := d.Endpoints.Deployments(v.Context(), v.scope, e.Name)
		if trainyard.IsNotFound(err) {
			continue // gone since
		}
		if err != nil {
			return nil, err
		}
		r := endpointRow{Name: e.Name, URL: v.endpointLink(e.Name), Description: e.Spec.Description, State: endpointState(e, deps),
			Shares: sharesOf(e.Spec.Traffic, deps, v.endpointLink(e.Name)), Address: e.Spec.ScoringURI, Auth: authWords(e.Spec.AuthMode)}
		for _, dep := range deps {
			ready := readyOf(dep)
			r.Deployments = append(r.Deployments, deploymentLine{Name: dep.Name, URL: r.URL + "#" + deploymentID(dep.Name), State: deploymentState(dep),
				Count: fmt.Sprintf("%d/%d", ready, dep.Status.Wanted), Short: ready < dep.Status.Wanted})
		}
		list = append(list, r)
	}
	return list, nil
}

// deploymentID is the id of a deployment's element on its endpoint's page.
func deploymentID(name string) string { return "deployment-" + name }

// authWords is how a file names who may call.
func authWords(mode string) string {
	switch mode {
	case trainyard.AuthAMLToken:
		return "aml_token"
	case trainyard.AuthAADToken:
		return "aad_token"
	}
	return strings.ToLower(mode)
}

// readyOf is how many replicas may be sent requests.
func readyOf(d *trainyard.OnlineDeployment) (n int) {
	for _, r := range d.Status.Replicas {
		if r.State == replicaReady {
			n++
		}
	}
	return n
}

// replicaReady is the state of a replica that takes requests.
const replicaReady = "Ready"

// endpointState is what a caller would find: the worst of the deployments that have traffic, or of all where none has.
func endpointState(e *trainyard.OnlineEndpoint, deps []*trainyard.OnlineDeployment) state {
	switch {
	case e.Deleting:
		return state{"waiting", "Deleting"}
	case len(deps) == 0:
		return state{"off", "No deployments"}
	case len(e.Spec.Traffic) == 0:
		return state{"off", "No traffic"}
	}
	worst, rank := state{"good", "Serving"}, 0
	worse := func(n int, s state) {
		if n > rank {
			worst, rank = s, n
		}
	}
	for _, d := range deps {
		if e.Spec.Traffic[d.Name] == 0 {
			continue
		}
		switch ready := readyOf(d); {
		case ready > 0:
		case d.Status.State == trainyard.DeploymentFailed:
			worse(3, state{"bad", "Failed"})
		case d.Status.State == trainyard.DeploymentSucceeded && d.Status.Wanted == 0:
			worse(1, state{"off", "Scaled to zero"})
		default:
			worse(2, state{"waiting", "Starting"})
		}
	}
	return worst
}

// deploymentState is a deployment's state in the words of the API, but for one that has no replica because nobody calls.
func deploymentState(d *trainyard.OnlineDeployment) state {
	s := &d.Status
	w := state{stateClass(string(s.State)), string(s.State)}
	switch {
	case s.State == trainyard.DeploymentSucceeded && s.Wanted == 0:
		return state{"off", "Scaled to zero"}
	case s.State == trainyard.DeploymentSucceeded && readyOf(d) < s.Wanted:
		w.Class = "waiting"
	}
	return w
}

// sharesOf draws percentages as one bar, a colour for each deployment.
func sharesOf(percent map[string]int, deps []*trainyard.OnlineDeployment, page string) []share {
	var out []share
	x := 0
	for i, d := range deps {
		p := percent[d.Name]
		if p <= 0 {
			continue
		}
		out = append(out, share{Name: d.Name, URL: page + "#" + deploymentID(d.Name), Class: deploymentColor(i), Percent: p,
			X: itoa(x * scale / 100), W: itoa(p * scale / 100)})
		x += p
	}
	return out
}

// deploymentColor is the class of the endpoint's deployment with the index.
func deploymentColor(i int) string { return "d-" + itoa(i%colors) }

const colors = 6
