package slurm

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

func TestConformance(t *testing.T) {
	t.Parallel() // beside a test that waits, after those that stop Slurm
	lab(t)
	for _, way := range waysIn {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			conform(t, way)
		})
	}
}

func conform(t *testing.T, way string) {
	s := labBy(t, way)
	targettest.Run(t, func(t *testing.T, dir string) (target.Driver, func() target.Driver) {
		s := s
		if s.Login != nil || s.REST != nil {
			s.Folder = filepath.Join(dir, "shared")
		}
		d := reopen(t, s, dir)
		return &prompt{d, t}, func() target.Driver {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = reopen(t, s, dir)
			return &prompt{d, t}
		}
	})
}

// prompt is the driver with a Start that also waits until Slurm has begun the task: the suite is about tasks that run.
type prompt struct {
	*Driver
	t *testing.T
}

func (p *prompt) Start(ctx context.Context, task trainyard.Task) error {
	if err := p.Driver.Start(ctx, task); err != nil {
		return err
	}
	late := time.After(time.Minute)
	for {
		all, err := p.Observe(ctx)
		if err != nil {
			return err
		}
		for _, o := range all {
			if o.ID == task.ID && o.State != trainyard.TaskStaging {
				return nil
			}
		}
		select {
		case <-late:
			p.t.Fatalf("Slurm does not begin %s: %+v", task.ID, all)
		case <-p.Changed():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
