package docker

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/trainyard/trainyard"
)

// buildLog is the file in which a job's owner reads how its environment came about.
const buildLog = "system_logs/environment.txt"

// builds are the preparations under way, one for each environment, whoever asks for it.
type builds struct {
	mu      sync.Mutex
	flights map[string]*flight
	goes    sync.WaitGroup
}

func (b *builds) wait() { b.goes.Wait() }

// flight is one preparation. It goes on as long as somebody waits for it, and tells all of them what it does.
type flight struct {
	done   chan struct{}
	cancel context.CancelFunc
	err    error // once done

	mu     sync.Mutex
	asking []trainyard.Progress
	said   string
	log    []byte
}

// do has work done for all who ask for key at once, and returns what came of it.
func (b *builds) do(ctx, run context.Context, key string, p trainyard.Progress, work func(ctx context.Context, f *flight) error) error {
	b.mu.Lock()
	f := b.flights[key]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var inside context.Context
		inside, f.cancel = context.WithCancel(run)
		b.flights[key] = f
		b.goes.Go(func() {
			defer f.cancel()
			f.err = work(inside, f)
			b.mu.Lock()
			if b.flights[key] == f {
				delete(b.flights, key)
			}
			b.mu.Unlock()
			close(f.done)
		})
	}
	f.join(p)
	b.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	if f.leave(p) == 0 { // nobody wants it any more; who comes now begins anew
		f.cancel()
		if b.flights[key] == f {
			delete(b.flights, key)
		}
	}
	b.mu.Unlock()
	return ctx.Err()
}

// join tells p what the others were told.
func (f *flight) join(p trainyard.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking = append(f.asking, p)
	if f.said != "" {
		p.Say(f.said)
	}
	if len(f.log) > 0 {
		p.Log(buildLog, slices.Clone(f.log))
	}
}

// leave returns how many still wait.
func (f *flight) leave(p trainyard.Progress) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.asking, p); i >= 0 {
		f.asking = slices.Delete(f.asking, i, i+1)
	}
	return len(f.asking)
}

func (f *flight) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = fmt.Sprintf(format, args...)
	for _, p := range f.asking {
		p.Say(f.said)
	}
}

// Write puts bytes into the log of all who wait.
func (f *flight) Write(data []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, data...)
	for _, p := range f.asking {
		p.Log(buildLog, slices.Clone(data))
	}
	return len(data), nil
}

// print writes a line of our own to the log.
func (f *flight) print(format string, args ...any) { fmt.Fprintf(f, format+"\n", args...) }
