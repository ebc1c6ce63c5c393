package studio

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	numbersEvery = time.Second     // an endpoint's page is drawn anew
	tailsEvery   = 3 * time.Second // the ends of its logs are read anew
	tailLines    = 40              // of each replica
	tailBytes    = 32 << 10        // of a deployment's replicas together
)

type endpointPage struct {
	frame
	Endpoint    endpointView
	Deployments deploymentsView
	Tails       []tailView
	Events      []eventRow
}

// endpointView is what is said of the endpoint itself.
type endpointView struct {
	Name, Description string
	State             state
	Auth              string
	URI, Swagger      string
	Key, Call, Invoke string // commands: show the key, call with curl, call with ours
	Shares, Mirror    []share
	Unrouted          string // command that gives a deployment the traffic; "" where one has it
	Tags              []fact
	Facts             []fact
}

type deploymentsView struct {
	Name string // of the endpoint
	List []deploymentView
}

// tailView is the last that a deployment's replicas said.
type tailView struct {
	Name string
	Text template.HTML // from screen, which escapes
}

func (d *door) showEndpoint(v *visit) error {
	e, deps, err := d.endpoint(v)
	if err != nil {
		return err
	}
	w := endpointViewOf(v, e, deps)
	p := endpointPage{frame: d.frame(v, w.State.Words+" · "+e.Name, "endpoints"), Endpoint: w, Deployments: d.deploymentsView(v, e, deps)}
	if p.Tails, err = d.tails(v, deps); err != nil {
		return err
	}
	var past history
	if err := past.read(v.Context(), d.Changes, e, deps); err != nil {
		return err
	}
	p.Events = past.rows(v.now)
	p.Live = v.link("/studio/live/endpoints/" + escapePath(e.Name))
	return d.show(v.w, http.StatusOK, "endpoint", p)
}

func (d *door) endpoint(v *visit) (*trainyard.OnlineEndpoint, []*trainyard.OnlineDeployment, error) {
	e, err := d.Endpoints.Endpoint(v.Context(), v.scope, v.PathValue("name"))
	if err != nil {
		return nil, nil, err
	}
	deps, err := d.Endpoints.Deployments(v.Context(), v.scope, e.Name)
	return e, deps, err
}

// streamEndpoint keeps an endpoint's page up to date, until the endpoint is gone.
func (d *door) streamEndpoint(v *visit) error {
	if _, err := d.Endpoints.Endpoint(v.Context(), v.scope, v.PathValue("name")); err != nil {
		return err
	}
	t := &endpointStream{d: d, v: v}
	return d.keep(v, numbersEvery, v.movesEndpoints, func(s *stream) error {
		err := t.look(s)
		if !trainyard.IsNotFound(err) {
			return err
		}
		if err := t.send(s, "endpoint-head", endpointView{Name: v.PathValue("name"), State: state{"off", "Deleted"}}); err != nil {
			return err
		}
		if err := s.event("end", "", true); err != nil {
			return err
		}
		return err
	})
}

// endpointStream is one browser's view of one endpoint.
type endpointStream struct {
	d    *door
	v    *visit
	past history
	read time.Time // when logs were read last
}

func (t *endpointStream) look(s *stream) error {
	d, v := t.d, t.v
	e, deps, err := d.endpoint(v)
	if err != nil {
		return err
	}
	if err := t.send(s, "endpoint-head", endpointViewOf(v, e, deps)); err != nil {
		return err
	}
	if err := t.send(s, "endpoint-deployments", d.deploymentsView(v, e, deps)); err != nil {
		return err
	}
	if err := t.past.read(v.Context(), d.Changes, e, deps); err != nil {
		return err
	}
	if err := t.send(s, "endpoint-events", t.past.rows(v.now)); err != nil {
		return err
	}
	if since := v.now.Sub(t.read); since >= 0 && since < tailsEvery {
		return nil
	}
	t.read = v.now
	tails, err := d.tails(v, deps)
	if err != nil {
		return err
	}
	return t.send(s, "endpoint-logs", tails)
}

func (t *endpointStream) send(s *stream, id string, data any) error {
	html, err := t.d.render(id, data)
	if err != nil {
		return err
	}
	return s.part(id, html, t.v.now)
}

func endpointViewOf(v *visit, e *trainyard.OnlineEndpoint, deps []*trainyard.OnlineDeployment) endpointView {
	s := &e.Spec
	w := endpointView{Name: e.Name, Description: s.Description, State: endpointState(e, deps), Auth: authWords(s.AuthMode), URI: s.ScoringURI,
		Swagger: s.SwaggerURI, Shares: sharesOf(s.Traffic, deps, "")}
	where := v.flags()
	what := "accessToken"
	if s.AuthMode == trainyard.AuthKey {
		what = "primaryKey"
	}
	w.Key = "KEY=$(trainyard online-endpoint get-credentials --name " + e.Name + where + " --query " + what + " -o tsv)"
	w.Call = "curl " + strings.TrimSuffix(strings.TrimSuffix(s.ScoringURI, "score"), "/") + "/score" + ` -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d @request.json`
	w.Invoke = "trainyard online-endpoint invoke --name " + e.Name + where + " --request-file request.json"
	for i, dep := range deps {
		if p := s.MirrorTraffic[dep.Name]; p > 0 {
			w.Mirror = append(w.Mirror, share{Name: dep.Name, URL: "#" + deploymentID(dep.Name), Class: deploymentColor(i), Percent: p, X: "0", W: itoa(p * scale / 100)})
		}
	}
	if len(w.Shares) == 0 && len(deps) > 0 && !e.Deleting {
		w.Unrouted = "trainyard online-endpoint update --name " + e.Name + where + " --traffic " + deps[0].Name + "=100"
	}
	for _, k := range sortedKeys(e.Tags) {
		w.Tags = append(w.Tags, fact{Name: k, Words: e.Tags[k]})
	}
	created := momentOf(v.now, e.Created)
	by := ""
	if e.CreatedBy != "" {
		by = " by " + e.CreatedBy
	}
	w.Facts = []fact{{Name: "Created", Words: created.Words + by, Title: created.Exact}}
	if id, err := trainyard.ParseID(s.Compute); err == nil {
		w.Facts = append(w.Facts, fact{Name: "Compute", Words: id.Name, URL: v.computeLink(id.Name)})
	}
	if e.Location != "" {
		w.Facts = append(w.Facts, fact{Name: "Location", Words: e.Location})
	}
	return w
}

// flags are what a command needs to reach a workspace that is not the one that commands mean.
func (v *visit) flags() string {
	here, own := v.scope, home(v.who)
	if here.Fold() == own.Fold() {
		return ""
	}
	out := " -w " + here.Workspace
	if !strings.EqualFold(here.ResourceGroup, own.ResourceGroup) {
		out += " -g " + here.ResourceGroup
	}
	if !strings.EqualFold(here.Subscription, own.Subscription) {
		out += " --subscription " + here.Subscription
	}
	return out
}

// tails are the ends of the deployments' logs: of the model servers, or of what prepares them as long as they have said nothing.
func (d *door) tails(v *visit, deps []*trainyard.OnlineDeployment) ([]tailView, error) {
	var out []tailView
	for _, dep := range deps {
		text := ""
		for _, container := range []string{"InferenceServer", "StorageInitializer"} {
			var err error
			text, err = d.Endpoints.DeploymentLogs(v.Context(), v.scope, dep.Endpoint, dep.Name, tailLines, container)
			if err != nil && !trainyard.IsNotFound(err) {
				return nil, err
			}
			if text != "" {
				break
			}
		}
		if cut := len(text) - tailBytes; cut > 0 {
			text = text[cut:]
			text = text[strings.IndexByte(text, '\n')+1:]
		}
		var s screen
		out = append(out, tailView{Name: dep.Name, Text: template.HTML(s.write([]byte(text)) + s.rest())})
	}
	return out, nil
}

// history is what happened to an endpoint and its deployments. It is read on from where it was.
type history struct {
	after  map[string]int64 // by subject: the last that was read
	events []trainyard.Event
}

func (h *history) read(ctx context.Context, from Changes, e *trainyard.OnlineEndpoint, deps []*trainyard.OnlineDeployment) error {
	if h.after == nil {
		h.after = map[string]int64{}
	}
	ask := func(kind, subject string) error {
		for {
			more, err := from.Events(ctx, trainyard.EventQuery{Scope: e.Scope, Kind: kind, Subject: subject, After: h.after[kind+subject], Top: 1000})
			if err != nil || len(more) == 0 {
				return err
			}
			h.events = append(h.events, more...)
			h.after[kind+subject] = more[len(more)-1].Seq
		}
	}
	if err := ask(kindEndpoint, e.Name); err != nil {
		return err
	}
	for _, d := range deps {
		if err := ask(kindDeployment, d.Endpoint+"/"+d.Name); err != nil {
			return err
		}
	}
	slices.SortStableFunc(h.events, func(a, b trainyard.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	h.events = h.events[max(len(h.events)-eventsAtMost, 0):]
	return nil
}

// rows are the events, the last first.
func (h *history) rows(now time.Time) []eventRow {
	var out []eventRow
	for _, e := range slices.Backward(h.events) {
		what := e.What
		if _, name, ok := strings.Cut(e.Subject, "/"); ok && e.Kind == kindDeployment {
			what = name + " " + what
		}
		out = append(out, eventRow{momentOf(now, e.Time), what, e.Who, e.Message})
	}
	return out
}
