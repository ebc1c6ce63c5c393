package spec

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// OnlineEndpoint is an endpoint ready to be sent.
type OnlineEndpoint struct {
	Name     string
	Location string // "" if the file has none: the workspace's
	Tags     map[string]string
	Identity json.RawMessage
	Spec     trainyard.EndpointSpec
	Warnings []string
}

// OnlineEndpoint translates an online endpoint, managed or of Kubernetes.
func (d *Document) OnlineEndpoint(scope trainyard.Scope) (*OnlineEndpoint, error) {
	f, err := d.reader(Endpoint)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "type", "kind", "scoring_uri", "openapi_uri", "provisioning_state", "provisioning_errors", "creation_context")
	f.need("name")
	e := &OnlineEndpoint{Name: f.endpointName("name", "endpoint"), Location: f.text("location"), Tags: f.texts("tags", false)}
	s := &e.Spec
	s.AuthMode = f.choice("auth_mode", "key", trainyard.AuthKey, "aml_token", trainyard.AuthAMLToken, "aad_token", trainyard.AuthAADToken,
		"amltoken", "("+trainyard.AuthAMLToken+")", "aadtoken", "("+trainyard.AuthAADToken+")")
	if s.AuthMode == "" {
		s.AuthMode = trainyard.AuthKey
	}
	s.Description = f.text("description")
	s.Properties = f.texts("properties", false)
	s.Compute = f.compute("compute", scope)
	s.Traffic = f.percents("traffic")
	f.wholeTraffic(s.Traffic)
	s.MirrorTraffic = f.percents("mirror_traffic")
	f.mirrors(s)
	s.PublicNetworkAccess = f.choice("public_network_access", "enabled", "Enabled", "disabled", "Disabled")
	f.noted("public_network_access", "who reaches the gateway's address reaches the endpoint, with a key")
	f.noted("defaults", "requests that name no deployment are divided as traffic says")
	e.Identity = f.computeIdentity()
	if err := d.end(f); err != nil {
		return nil, err
	}
	e.Warnings = f.p.notes
	return e, nil
}

// endpointName is the name of an endpoint or of a deployment.
func (f *fields) endpointName(field, what string) string {
	text := f.text(field)
	if text != "" && trainyard.CheckEndpointName(what, text) != nil {
		f.wrong(f.get(field), field, "3 to 32 letters, digits and -, beginning with a letter and not ending with -"+placeholderHint(text))
	}
	return text
}

// percents is a field that is a map of percentages by deployment, nil if it is not there: what an endpoint has already then stays.
func (f *fields) percents(name string) map[string]int {
	if f.get(name) == nil {
		return nil
	}
	all := map[string]int{}
	f.each(name, func(k, v *node, path string) {
		n, ok := v.whole()
		if v.null() || !ok || n > 100 {
			f.p.at(v.place, path, "got %s, want percent: a whole number from 0 to 100", v.words())
			return
		}
		all[k.text] = n
	})
	return all
}

// wholeTraffic refuses traffic that is neither all nor nothing.
func (f *fields) wholeTraffic(traffic map[string]int) {
	sum := 0
	for _, n := range traffic {
		sum += n
	}
	if len(f.p.list) == 0 && sum != 0 && sum != 100 {
		f.p.at(f.place("traffic"), f.at("traffic"), "the parts come to %d %%, and must come to 100, or to 0 for no traffic at all", sum)
	}
}

// mirrors checks mirror traffic: to one deployment that has no traffic of its own, at most half.
func (f *fields) mirrors(s *trainyard.EndpointSpec) {
	const most = 50
	if len(s.MirrorTraffic) > 1 {
		f.p.at(f.place("mirror_traffic"), f.at("mirror_traffic"), "there are %d deployments, and traffic is mirrored to one", len(s.MirrorTraffic))
	}
	for name, n := range s.MirrorTraffic {
		if n > most {
			f.p.at(f.place("mirror_traffic"), f.at("mirror_traffic."+name), "got %d, want at most %d percent", n, most)
		}
		if n > 0 && s.Traffic[name] > 0 {
			f.p.at(f.place("mirror_traffic"), f.at("mirror_traffic."+name), "the deployment has %d %% of the traffic itself: a deployment is live or mirrored", s.Traffic[name])
		}
	}
}

var weekdays = []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}

// replicaFloors reads a deployment's schedules.
func (f *fields) replicaFloors(name string) []trainyard.ReplicaFloor {
	n := f.get(name)
	if n == nil {
		return nil
	}
	if n.kind != list {
		f.wrong(n, name, "a list of maps with days, from, to and min_instances")
		return nil
	}
	var all []trainyard.ReplicaFloor
	for i, v := range n.values {
		one := &fields{p: f.p, n: v, path: f.at(name) + (step{index: i}).String()}
		if v.kind != mapping {
			f.p.at(v.place, one.path, "got %s, want a map with days, from, to and min_instances", v.words())
			continue
		}
		floor := trainyard.ReplicaFloor{From: one.clock("from"), To: one.clock("to"), TimeZone: one.text("time_zone")}
		one.need("min_instances")
		floor.MinInstances = or(one.integer("min_instances", 0), 0)
		for _, day := range one.list("days") {
			at := slices.IndexFunc(weekdays, func(w string) bool {
				return len(day) >= 2 && len(day) <= len(w) && strings.EqualFold(w[:len(day)], day)
			})
			if at < 0 {
				one.p.at(one.place("days"), one.at("days"), "got %q, want days such as Monday", day)
				continue
			}
			floor.Days = append(floor.Days, weekdays[at])
		}
		one.done()
		all = append(all, floor)
	}
	return all
}

var clockPattern = regexp.MustCompile(`^([01]?[0-9]|2[0-4]):[0-5][0-9]$`)

// clock is a time of day that must be there. YAML reads 08:30 as text, and 18:30 without quotes as a number: what is written counts.
func (f *fields) clock(name string) string {
	text := f.need(name)
	if text != "" && !clockPattern.MatchString(text) {
		f.wrong(f.get(name), name, "a time of day such as 08:30")
	}
	return text
}
