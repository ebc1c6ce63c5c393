package studio_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// event is one server-sent event.
type event struct {
	name, id, data string
}

type events struct {
	t    testing.TB
	ch   chan event
	stop context.CancelFunc
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// stream opens a live page, as EventSource does.
func (b *browser) stream(path string, lastID string) *events {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		b.t.Fatalf("GET %s: %s", path, res.Status)
	}
	e := &events{b.t, make(chan event, 1000), stop}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(e.ch)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 64<<20)
		var now event
		for lines.Scan() {
			switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
			case "event":
				now.name = value
			case "id":
				now.id = value
			case "data":
				now.data += value
			case "":
				if now.name != "" {
					e.ch <- now
				}
				now = event{id: now.id}
			}
		}
	}()
	b.t.Cleanup(func() { stop(); <-done })
	return e
}

// until returns the first event that match takes.
func (e *events) until(what string, match func(event) bool) event {
	e.t.Helper()
	late := time.After(patience)
	for {
		select {
		case ev, ok := <-e.ch:
			if !ok {
				e.t.Fatalf("the stream ended before %s", what)
			}
			if match(ev) {
				return ev
			}
		case <-late:
			e.t.Fatalf("%s did not come", what)
		}
	}
}

// part waits until a part of the page can be read so.
func (e *events) part(id string, words ...string) {
	e.t.Helper()
	e.until(id+" with "+strings.Join(words, " and "), func(ev event) bool {
		var p struct{ ID, HTML string }
		if ev.name != "part" || json.Unmarshal([]byte(ev.data), &p) != nil || p.ID != id {
			return false
		}
		text := answer{body: p.HTML}.tree(e.t).words()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
}

// pane is what a browser makes of a log's events.
type pane struct {
	done, open, id string
	start          int64
	resets         int
}

func (p *pane) take(t testing.TB, ev event) {
	t.Helper()
	var piece struct {
		Reset      bool
		Start      int64
		Done, Open string
	}
	if err := json.Unmarshal([]byte(ev.data), &piece); err != nil {
		t.Fatal(err)
	}
	if piece.Reset {
		p.done, p.start = "", piece.Start
		p.resets++
	}
	p.done, p.open, p.id = p.done+piece.Done, piece.Open, ev.id
}

// reads follows the log until it can be read so.
func (p *pane) reads(e *events, want string) {
	e.t.Helper()
	e.until(fmt.Sprintf("the log %.60q", want), func(ev event) bool {
		if ev.name == "log" {
			p.take(e.t, ev)
		}
		return p.done+p.open == want
	})
}
