package studio

import (
	"net/http"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// nodesAtMost and waitingAtMost are shown on a compute's page.
const (
	nodesAtMost   = 200
	waitingAtMost = 20
)

type computePage struct {
	frame
	Compute computeDetail
}

// computeDetail is the live part.
type computeDetail struct {
	computeView
	NodeRows []nodeRow
	More     int // nodes that are not shown
	Waiting  []jobRow
	MoreWait string // address of the jobs that wait and are not shown
}

type nodeRow struct {
	ID, Address, Size string
	Engines           string
	State             state
	Why               string
	Since             moment
	Seen              moment
	Jobs              []fact
	Notes             []string
}

func (d *door) showCompute(v *visit) error {
	c, err := d.computeDetail(v)
	if err != nil {
		return err
	}
	p := computePage{frame: d.frame(v, c.Name, "computes"), Compute: c}
	p.Live = v.link("/studio/live/computes/" + escapePath(c.Name))
	return d.show(v.w, http.StatusOK, "compute", p)
}

func (d *door) streamCompute(v *visit) error {
	return d.keep(v, computesEvery, v.movesNodes, func(s *stream) error {
		c, err := d.computeDetail(v)
		if err != nil {
			return err
		}
		html, err := d.render("compute-live", c)
		if err != nil {
			return err
		}
		return s.part("compute-live", html, v.now)
	})
}

func (d *door) computeDetail(v *visit) (computeDetail, error) {
	c, err := d.Computes.Compute(v.Context(), v.scope, v.PathValue("name"))
	if err != nil {
		return computeDetail{}, err
	}
	nodes, err := d.Computes.Nodes(v.Context(), v.scope, c.Name)
	if err != nil {
		return computeDetail{}, err
	}
	w := computeDetail{computeView: computeOf(v, c, nodes)}
	if w.Location, err = d.locationOf(v, c); err != nil {
		return computeDetail{}, err
	}
	slices.SortFunc(nodes, bySight)
	for i, n := range nodes {
		if i == nodesAtMost {
			w.More = len(nodes) - nodesAtMost
			break
		}
		w.NodeRows = append(w.NodeRows, nodeOf(v, n))
	}
	waiting, more, err := d.Computes.Waiting(v.Context(), v.scope, c.Name, waitingAtMost)
	if err != nil {
		return w, err
	}
	for _, j := range waiting {
		w.Waiting = append(w.Waiting, rowOf(v, j))
	}
	if more {
		w.MoreWait = v.link("/jobs", "compute", c.Name, "state", string(trainyard.JobQueued))
	}
	return w, nil
}

// locationOf is where a cluster's nodes come from, and what makes them: the location itself, and the word for it that its file has where that
// is another. Any other compute is where its address says: "".
func (d *door) locationOf(v *visit, c *trainyard.Compute) (string, error) {
	if !c.Elastic() {
		return "", nil
	}
	text := c.Where
	if c.Location != "" && !strings.EqualFold(c.Location, c.Where) && !strings.EqualFold(c.Location, trainyard.DefaultLocation) {
		text += " (" + c.Location + ")"
	}
	l, err := d.Computes.Location(v.Context(), c.Where)
	if err != nil && !trainyard.IsNotFound(err) {
		return "", err
	}
	if err != nil || l.Name != c.Where {
		return text + ", which the server's settings do not name any more", nil
	}
	return text + ", driver " + l.Driver, nil
}

func nodeOf(v *visit, s trainyard.NodeStatus) nodeRow {
	n := s.Node
	r := nodeRow{ID: string(n.ID), Address: n.Address, Size: n.Size, Engines: strings.Join(n.Engines, ", "), State: state{stateClass(string(n.State)), string(n.State)}, Why: n.Reason.Message,
		Since: momentOf(v.now, n.Reason.Since), Seen: momentOf(v.now, n.Seen), Notes: n.Notes}
	if n.State == trainyard.NodeRunning || n.State == trainyard.NodePreparing {
		r.Why = "" // its jobs say it; the reason is older than they are
	}
	if n.State == trainyard.NodeIdle {
		r.Why = "waits for work"
		if !n.IdleFrom.IsZero() {
			r.Since = momentOf(v.now, n.IdleFrom)
		}
	}
	if s.Away.Message != "" {
		r.Why, r.Since = s.Away.Message, momentOf(v.now, s.Away.Since)
	}
	jobs := slices.Compact(slices.Sorted(slices.Values(s.Jobs)))
	for _, j := range jobs {
		r.Jobs = append(r.Jobs, fact{Words: j, URL: v.jobLink(j)})
	}
	return r
}
