package studio

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	breath     = 300 * time.Millisecond // between two looks, so that a busy server does not draw for a viewer without end
	streamLife = 30 * time.Minute       // then the browser asks again, and who it is is checked anew
)

// stream sends events to one browser.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	sent map[string][sha256.Size]byte // of each part, what the browser has
}

func openStream(w http.ResponseWriter) (*stream, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies of the nginx family hold answers back otherwise
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, rc: http.NewResponseController(w), sent: map[string][sha256.Size]byte{}}
	return s, s.write("retry: 2000\n\n")
}

func (s *stream) write(text string) error {
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}

// event sends v as JSON, which has no ends of lines in it. The browser tells the last id that it has seen when it comes back.
func (s *stream) event(name, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b strings.Builder
	if id != "" {
		b.WriteString("id: " + strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(id) + "\n")
	}
	b.WriteString("event: " + name + "\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	return s.write(b.String())
}

// part replaces the element that has the id, if it is not what the browser has already.
func (s *stream) part(id string, html []byte, now time.Time) error {
	sum := sha256.Sum256(bytes.TrimSpace(html))
	if s.sent[id] == sum {
		return nil
	}
	s.sent[id] = sum
	return s.event("part", "", map[string]any{"id": id, "html": string(bytes.TrimSpace(html)), "now": now.UnixMilli()})
}

// beat keeps proxies from hanging up, and notices browsers that are gone.
func (s *stream) beat() error { return s.write(": \n\n") }

// watcher is what a stream waits for: that something changes which concerns it, or that time passes.
type watcher struct {
	changed chan struct{}
	tick    *time.Ticker
	stop    func()
}

func (d *door) watch(every time.Duration, concerns func(trainyard.Change) bool) *watcher {
	w := &watcher{changed: make(chan struct{}, 1), tick: time.NewTicker(every)}
	w.stop = d.Changes.Subscribe(func(c trainyard.Change) {
		if !concerns(c) {
			return
		}
		select {
		case w.changed <- struct{}{}:
		default: // it will look anyway
		}
	})
	return w
}

func (w *watcher) close() {
	w.stop()
	w.tick.Stop()
}

// keep streams a page's parts until the browser goes: look sends them, at once and whenever something changed.
func (d *door) keep(v *visit, every time.Duration, concerns func(trainyard.Change) bool, look func(*stream) error) error {
	s, err := openStream(v.w)
	if err != nil {
		return nil
	}
	w := d.watch(every, concerns) // before the first look, so that nothing is missed between the two
	defer w.close()
	for end := d.Now().Add(streamLife); d.Now().Before(end); {
		v.now = d.Now()
		if _, err := d.session(v.Request); err != nil {
			return nil // logged out; the browser comes back and is told so
		}
		if err := look(s); err != nil {
			return d.broken(v, err)
		}
		if err := s.beat(); err != nil {
			return nil
		}
		select {
		case <-v.Context().Done():
			return nil
		case <-w.changed:
			rest(v, breath)
		case <-w.tick.C:
		}
	}
	return nil
}

// broken notes why a stream ended. Its answer has begun, so the browser cannot be told; it comes back and sees.
func (d *door) broken(v *visit, err error) error {
	if v.Context().Err() == nil && trainyard.CodeOf(err) == trainyard.CodeInternal {
		d.Log.Warn("live page ended", "path", v.URL.Path, "error", err)
	}
	return nil
}

// rest waits, unless the browser goes.
func rest(v *visit, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-v.Context().Done():
	}
}

// inScope says whether a change touches jobs or computes of the visit's workspace. Nodes have no workspace in their names, so all count.
func (v *visit) inScope(c trainyard.Change) bool {
	prefix := v.scope.Key() + "/"
	for _, k := range c.Jobs {
		if strings.HasPrefix(string(k), prefix) {
			return true
		}
	}
	for _, k := range c.Computes {
		if strings.HasPrefix(string(k), prefix) {
			return true
		}
	}
	return false
}
