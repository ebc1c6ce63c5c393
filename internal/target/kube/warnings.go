package kube

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"
)

// warnings are the namespace's events of the kind, by the UID of what they are about. The API server keeps no index of events: to find those of
// one object it reads all, of everybody in the namespace, from its database. So all tasks that wait share one reading.
type warnings struct {
	mu      sync.Mutex
	reading bool
	next    time.Time // not before
	words   map[string]string
}

const (
	warningsEvery  = 3 * time.Second // at most
	warningsPart   = 50              // of the time at most is spent on reading: one of so many parts,
	warningsSeldom = time.Minute     // unless that were more seldom
	warningsLong   = 30 * time.Second
	warningsPage   = "500"
)

// said are events that the status tells better, or that say nothing of why a task waits.
var said = []string{"FailedScheduling", "MissingClusterDNS", "Failed", "BackOff", "InspectFailed"}

// of is the latest warning about an object, "" if there is none, as of a moment ago: nobody waits for a reading.
func (w *warnings) of(d *Driver, uid string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); !w.reading && now.After(w.next) {
		w.reading = true
		d.members.Go(func() { w.read(d, now) })
	}
	return w.words[uid]
}

func (w *warnings) read(d *Driver, began time.Time) {
	ctx, cancel := context.WithTimeout(d.ctx, warningsLong)
	defer cancel()
	words, err := d.readWarnings(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading, w.next = false, time.Now().Add(warningsEvery)
	if err != nil {
		d.env.Log.Debug("read events", "err", err)
		return
	}
	w.words, w.next = words, time.Now().Add(min(max(warningsEvery, warningsPart*time.Since(began)), warningsSeldom))
}

// readWarnings reads all.
func (d *Driver) readWarnings(ctx context.Context) (map[string]string, error) {
	words, last := map[string]string{}, map[string]time.Time{}
	for next := ""; ; {
		q := url.Values{"fieldSelector": {"type=Warning"}, "limit": {warningsPage}}
		if next != "" {
			q.Set("continue", next)
		}
		var p page[event]
		if err := d.api.get(ctx, d.api.path(events), q, &p); err != nil {
			return nil, err
		}
		for _, e := range p.Items {
			when := e.Last
			if when.IsZero() {
				when = e.Time
			}
			if uid := e.About.UID; !slices.Contains(said, e.Reason) && !when.Before(last[uid]) {
				words[uid], last[uid] = e.Message, when
			}
		}
		if next = p.Meta.Continue; next == "" {
			return words, nil
		}
	}
}
