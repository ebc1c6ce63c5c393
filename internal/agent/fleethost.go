package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// FleetLink is what a fleet's host asks the server; package control satisfies it.
type FleetLink interface {
	// FleetWanted is every machine that the location should have. It blocks until Rev is above after, or some 25 s have passed.
	FleetWanted(ctx context.Context, location string, after int64) (trainyard.FleetWanted, error)
	// FleetReport says what was seen and done.
	FleetReport(ctx context.Context, r trainyard.FleetReport) error
}

// FleetConfig is what a FleetHost works with.
type FleetConfig struct {
	Location string
	Link     FleetLink
	Driver   fleet.Driver
	Log      *slog.Logger
}

// FleetHost makes a location's machines be those that are wanted.
type FleetHost struct {
	cfg    FleetConfig
	wanted atomic.Pointer[trainyard.FleetWanted]
	news   chan struct{}
}

// fleetLook is how often a fleet is looked at when nothing is said to have changed.
const fleetLook = 5 * time.Second

// NewFleetHost makes a FleetHost; Run starts it.
func NewFleetHost(c FleetConfig) *FleetHost {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &FleetHost{cfg: c, news: make(chan struct{}, 1)}
}

// Run works until ctx is done. Machines go on.
func (h *FleetHost) Run(ctx context.Context) error {
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		h.listen(ctx)
	}()
	defer func() { <-listening }()
	var changed <-chan struct{}
	if w, ok := h.cfg.Driver.(interface{ Changed() <-chan struct{} }); ok {
		changed = w.Changed()
	}
	look := time.NewTicker(fleetLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.news:
		case <-changed:
		case <-look.C:
		}
		if w := h.wanted.Load(); w != nil {
			if err := h.round(ctx, *w); err != nil && ctx.Err() == nil {
				h.cfg.Log.Error("fleet", "location", h.cfg.Location, "error", err)
			}
		}
	}
}

// listen keeps what is wanted up to date.
func (h *FleetHost) listen(ctx context.Context) {
	after := int64(0)
	for ctx.Err() == nil {
		w, err := h.cfg.Link.FleetWanted(ctx, h.cfg.Location, after)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		after = w.Rev
		h.wanted.Store(&w)
		select {
		case h.news <- struct{}{}:
		default:
		}
	}
}

// round makes the difference between what is there and what is wanted, and says so. With half a view it does nothing.
func (h *FleetHost) round(ctx context.Context, w trainyard.FleetWanted) error {
	have, err := h.cfg.Driver.Machines(ctx)
	if err != nil {
		return err
	}
	want := map[trainyard.NodeID]bool{}
	for _, m := range w.Machines {
		want[m.ID] = true
	}
	running := map[trainyard.NodeID]bool{}
	var surplus []trainyard.NodeID
	for _, m := range have {
		running[m.ID] = m.State != trainyard.MachineDead
		if !want[m.ID] {
			surplus = append(surplus, m.ID)
		}
	}
	var missing []trainyard.MachineSpec
	for _, m := range w.Machines {
		if !running[m.ID] {
			missing = append(missing, m)
		}
	}
	report := trainyard.FleetReport{Location: h.cfg.Location, Failed: map[trainyard.NodeID]string{}}
	if len(missing) > 0 {
		_, err := h.cfg.Driver.Grow(ctx, missing)
		h.blame(err, report.Failed)
	}
	if len(surplus) > 0 {
		stopped, err := h.cfg.Driver.Shrink(ctx, surplus)
		report.Stopped = stopped
		h.blame(err, report.Failed)
	}
	if report.Machines, err = h.cfg.Driver.Machines(ctx); err != nil {
		return err
	}
	return h.cfg.Link.FleetReport(ctx, report)
}

// blame sorts joined errors by machine; what belongs to none is logged.
func (h *FleetHost) blame(err error, failed map[trainyard.NodeID]string) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			h.blame(e, failed)
		}
		return
	}
	if e, ok := errors.AsType[*fleet.MachineError](err); ok {
		failed[e.ID] = e.Err.Error()
	}
	h.cfg.Log.Warn("fleet", "location", h.cfg.Location, "error", err)
}
