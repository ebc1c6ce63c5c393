package studio

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// What is kept of the gateway's counts while somebody looks, to say how they change.
const (
	trafficKept = time.Minute            // latencies and errors are of this time
	trafficRate = 10 * time.Second       // requests a second are of this one
	trafficStep = 900 * time.Millisecond // between two that are kept
)

// traffic is the gateway's counts as they were when somebody looked within the last minute.
type traffic struct {
	read func() []trainyard.ServeStats // nil: there is no gateway to ask

	mu      sync.Mutex
	samples []sample // oldest first
}

type sample struct {
	at time.Time
	by map[string]trainyard.ServeStats // by deploymentKey
}

func deploymentKey(endpoint, name string) string { return strings.ToLower(endpoint + "/" + name) }

// reading is the counts now, and those of before that they are compared with.
type reading struct {
	now, second, minute sample
}

// look asks the gateway; false: there is none.
func (t *traffic) look(now time.Time) (reading, bool) {
	if t.read == nil {
		return reading{}, false
	}
	s := sample{at: now, by: map[string]trainyard.ServeStats{}}
	for _, st := range t.read() {
		s.by[deploymentKey(st.Endpoint, st.Deployment)] = st
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples = slices.DeleteFunc(t.samples, func(o sample) bool { return now.Sub(o.at) > trafficKept || o.at.After(now) })
	r := reading{now: s, second: s, minute: s}
	if len(t.samples) > 0 {
		r.second, r.minute = t.samples[0], t.samples[0]
	}
	for _, o := range t.samples {
		if now.Sub(o.at) >= trafficRate {
			r.second = o
		}
	}
	if n := len(t.samples); n == 0 || now.Sub(t.samples[n-1].at) >= trafficStep {
		t.samples = append(t.samples, s)
	}
	return r, true
}

// tile is one number with its name.
type tile struct {
	Name, Value, Note string
	Bad               bool
}

// codeCount is how many answers had a status.
type codeCount struct {
	Code, N, Note string
	Class         string
}

// numbersView is a deployment's traffic at the gateway.
type numbersView struct {
	Tiles []tile
	Codes []codeCount
	Total string // "1,203 requests since the gateway started"
	Notes []string
}

// numbers is what a reading says of a deployment; nil where the gateway does not know it. One that is given no requests and had none has
// no tiles.
func (r *reading) numbers(endpoint, name string, given bool) *numbersView {
	key := deploymentKey(endpoint, name)
	now, known := r.now.by[key]
	if !known {
		return nil
	}
	n := &numbersView{Total: count64(now.Requests, "request") + " since the gateway started"}
	if !given && came(&now)+int64(now.Queued) == 0 {
		return n
	}
	n.Tiles = r.tiles(key)
	for _, code := range slices.Sorted(maps.Keys(now.Codes)) {
		n.Codes = append(n.Codes, codeOf(code, now.Codes[code]))
	}
	for _, c := range []struct {
		n    int64
		what string
	}{{now.Mirrored, "copies of other deployments' requests"}, {now.Retries, "requests sent again because a replica was lost"},
		{now.Dropped, "copies or collected rows dropped"}} {
		if c.n > 0 {
			n.Notes = append(n.Notes, thousands(c.n)+" "+c.what)
		}
	}
	return n
}

// tiles are the numbers that a person looks at first.
func (r *reading) tiles(key string) []tile {
	now, out := r.now.by[key], []tile{r.rate(key)}
	for _, g := range []struct {
		name, note string
		n          int
	}{{"In flight", "at replicas", now.InFlight}, {"Queued", "for their turn", now.Queued - now.Held}, {"Held", "for a first replica", now.Held}} {
		out = append(out, tile{Name: g.name, Value: itoa(max(g.n, 0)), Note: g.note})
	}
	part, of := r.recent(key)
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p95", 0.95}, {"p99", 0.99}} {
		t := tile{Name: q.name, Value: "–", Note: of}
		if answers(&part) > 0 {
			t.Value = "≤ " + fine(part.LatencyQuantile(q.share))
		}
		out = append(out, t)
	}
	bad := failures(part.Codes)
	out = append(out, tile{Name: "Errors", Value: thousands(bad), Note: of, Bad: bad > 0})
	return out
}

// rate is how many requests came a second, of late.
func (r *reading) rate(key string) tile {
	t := tile{Name: "Requests/s", Value: "–", Note: "counted from now on"}
	took := r.now.at.Sub(r.second.at)
	if took < trafficStep/2 {
		return t
	}
	now, was := r.now.by[key], r.second.by[key]
	before := came(&was)
	if came(&now) < before { // it was deleted and made again
		before = 0
	}
	t.Value, t.Note = perSecond(float64(came(&now)-before)/took.Seconds()), "in the last "+long(took.Round(time.Second))
	return t
}

// recent is the answers since the oldest reading that is kept; where there were none, all answers. The words say of which time they are.
func (r *reading) recent(key string) (trainyard.ServeStats, string) {
	now, was := r.now.by[key], r.minute.by[key]
	if took := r.now.at.Sub(r.minute.at); took >= trafficStep/2 && came(&now) >= came(&was) && len(was.Latency) <= len(now.Latency) {
		part := now
		part.Latency, part.Codes = slices.Clone(now.Latency), maps.Clone(now.Codes)
		for i, n := range was.Latency {
			part.Latency[i] -= n
		}
		for code, n := range was.Codes {
			part.Codes[code] -= n
		}
		if answers(&part) > 0 {
			return part, "in the last " + long(took.Round(time.Second))
		}
	}
	return now, "of all answers"
}

// came is how many requests came, copies included.
func came(s *trainyard.ServeStats) int64 { return s.Requests + s.Mirrored }

func answers(s *trainyard.ServeStats) (n int64) {
	for _, k := range s.Latency {
		n += k
	}
	return n
}

func failures(codes map[int]int64) (n int64) {
	for code, k := range codes {
		if code >= 400 {
			n += k
		}
	}
	return n
}

func codeOf(code int, n int64) codeCount {
	c := codeCount{Code: itoa(code), N: thousands(n), Class: "good"}
	switch {
	case code == 499:
		c.Class, c.Note = "off", "the caller went away"
	case code >= 500, code == 424: // 424: the replica answered with an error
		c.Class = "bad"
	case code >= 400:
		c.Class = "waiting"
	}
	if code == 424 {
		c.Note = "the model said no, or there was no replica"
	}
	return c
}

// fine is a short duration: 0.5ms, 25ms, 2.5s.
func fine(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', 3, 64) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + "s"
	}
	return long(d)
}

func perSecond(f float64) string {
	if f >= 10 {
		return thousands(int64(f + 0.5))
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

func count64(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + one + "s"
}

// thousands writes 1203 as 1,203.
func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
