package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"github.com/trainyard/trainyard"
)

// GrowEach makes machines at the same time, and returns how many are there, with a MachineError for each that is not.
func GrowEach(want []trainyard.MachineSpec, grow func(trainyard.MachineSpec) error) (int, error) {
	there, err := each(want, func(s trainyard.MachineSpec) trainyard.NodeID { return s.ID }, grow)
	return len(there), err
}

// ShrinkEach ends machines at the same time, and returns those that are gone, with a MachineError for each that is not.
func ShrinkEach(ids []trainyard.NodeID, shrink func(trainyard.NodeID) error) ([]trainyard.NodeID, error) {
	return each(ids, func(id trainyard.NodeID) trainyard.NodeID { return id }, shrink)
}

func each[T any](all []T, id func(T) trainyard.NodeID, do func(T) error) (done []trainyard.NodeID, err error) {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() {
			if err := do(one); err != nil {
				errs[i] = &MachineError{ID: id(one), Err: err}
			}
		})
	}
	wg.Wait()
	for i, one := range all {
		if errs[i] == nil {
			done = append(done, id(one))
		}
	}
	return done, errors.Join(errs...)
}

// Folder is a name for a machine's folder: its ID, with a hash where an ID would not do as a name.
func Folder(id trainyard.NodeID) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, string(id))
	if clean == string(id) && clean != "" && len(clean) <= 100 && clean[0] != '.' {
		return clean
	}
	sum := sha256.Sum256([]byte(id))
	return "node-" + strings.TrimLeft(clean[:min(len(clean), 60)], ".") + "-" + hex.EncodeToString(sum[:6])
}

// Turns keeps all but one from working on a thing, such as a machine's folder. The zero value is ready.
type Turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when whoever works on it is done
}

// Alone waits until nobody else works on what key names, and keeps others out until done is called. The error is ctx's.
func (t *Turns) Alone(ctx context.Context, key string) (done func(), err error) {
	for {
		t.mu.Lock()
		other, taken := t.busy[key]
		if !taken {
			mine := make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[key] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.busy, key)
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Taken says whether somebody works on what key names.
func (t *Turns) Taken(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, taken := t.busy[key]
	return taken
}
