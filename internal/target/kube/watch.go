package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// mirror follows all objects of one kind that carry our group's label, by one list and then a watch, and hands on what it hears. It lists
// again only when the server has forgotten where the watch stopped.
type mirror[T any] struct {
	api     *client
	kind    string
	group   string
	log     *slog.Logger
	version func(*T) string
	whole   func(all []*T, asked time.Time) // replaces everything that was said before; asked is when the list was begun
	one     func(o *T, gone bool)           // one has changed

	mu     sync.Mutex
	synced bool
	lost   time.Time // since when nothing is heard; zero while the watch is open
	err    error     // why
}

const (
	watchLife  = 5 * time.Minute // after which the server ends a watch, so that a dead one is noticed even if nothing else does
	firstRetry = 100 * time.Millisecond
	lastRetry  = 3 * time.Second
)

// run follows until ctx is done.
func (m *mirror[T]) run(ctx context.Context) {
	version, wait := "", firstRetry
	for ctx.Err() == nil {
		next, err := m.pass(ctx, version)
		if ctx.Err() != nil {
			return
		}
		if next != "" && next != version {
			wait = firstRetry
		}
		version = next
		if err == nil {
			continue
		}
		m.fell(err)
		if isGone(err) {
			version = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, lastRetry)
	}
}

// pass lists if there is no version to go on from, watches until the watch ends, and returns where it ended.
func (m *mirror[T]) pass(ctx context.Context, version string) (string, error) {
	if version == "" {
		asked := time.Now()
		var p page[T]
		if err := m.api.get(ctx, m.api.path(m.kind), m.query(nil), &p); err != nil {
			return "", fmt.Errorf("list %s: %w", m.kind, err)
		}
		version = p.Meta.Version
		m.whole(p.Items, asked)
		m.heard()
	}
	body, err := m.api.send(ctx, http.MethodGet, m.api.path(m.kind), m.query(url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {fmt.Sprint(int(watchLife.Seconds()))},
	}), "", nil)
	if err != nil {
		return version, fmt.Errorf("watch %s: %w", m.kind, err)
	}
	defer body.Close()
	m.heard()
	return m.read(json.NewDecoder(body), version)
}

// read hands on what a watch says until it ends.
func (m *mirror[T]) read(in *json.Decoder, version string) (string, error) {
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := in.Decode(&e); {
		case errors.Is(err, io.EOF):
			return version, nil // its time was up
		case err != nil:
			return version, fmt.Errorf("watch %s: %w", m.kind, err)
		}
		if e.Type == "ERROR" {
			s := &status{Message: "the watch ended"}
			if json.Unmarshal(e.Object, s) == nil && s.Code == http.StatusGone {
				return "", s
			}
			return "", fmt.Errorf("watch %s: %w", m.kind, s)
		}
		o := new(T)
		if err := json.Unmarshal(e.Object, o); err != nil {
			return "", fmt.Errorf("watch %s: %w", m.kind, err)
		}
		version = m.version(o)
		if e.Type != "BOOKMARK" {
			m.one(o, e.Type == "DELETED")
		}
	}
}

func (m *mirror[T]) query(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	q.Set("labelSelector", groupLabel+"="+m.group)
	return q
}

func (m *mirror[T]) heard() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		m.log.Info("the Kubernetes API answers again", "kind", m.kind, "after", time.Since(m.lost).Round(time.Millisecond))
	}
	m.synced, m.lost, m.err = true, time.Time{}, nil
}

func (m *mirror[T]) fell(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && !isGone(err) {
		m.log.Warn("the Kubernetes API does not answer", "kind", m.kind, "err", err)
	}
	if m.lost.IsZero() {
		m.lost = time.Now()
	}
	m.err = err
}

// fresh is nil while what was handed on can be relied on: there was a list, and the server was heard within limit.
func (m *mirror[T]) fresh(limit time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.synced && m.err != nil:
		return m.err
	case !m.synced:
		return fmt.Errorf("the first list of %s is not there yet", m.kind)
	case !m.lost.IsZero() && time.Since(m.lost) > limit:
		return fmt.Errorf("nothing heard since %s: %w", m.lost.UTC().Format("15:04:05 MST"), m.err)
	}
	return nil
}

// unheard is why nothing is heard, and since when.
func (m *mirror[T]) unheard() (since time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost.IsZero() {
		return time.Time{}, nil
	}
	return m.lost, m.err
}
