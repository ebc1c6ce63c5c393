package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	chunk     = 256 << 10              // most bytes in one Append
	turn      = 16                     // chunks of one log before another log has its turn
	firstLook = 20 * time.Millisecond  // between looks at a log that grows
	lastLook  = 200 * time.Millisecond // between looks at one that is quiet
	maxReads  = 5                      // tries to read a log of an ended task before it is given up, with a warning
)

// tail is one log on its way to the server.
type tail struct {
	name  string // as users see it
	open  func(ctx context.Context, from int64) (io.ReadCloser, error)
	at    int64 // what the server has
	asked bool  // at is what the server said, or this is the first byte of a task new to us
	over  bool  // refused or unreadable for good
	tries int   // reads that went wrong in a row
}

// pump sends a task's logs as they grow. The server's size of each log is the only position there is, so nothing is lost or doubled
// whoever dies. One goroutine runs it.
type pump struct {
	k     *task
	wake  chan struct{} // look now
	last  chan struct{} // closed when the task writes no more
	done  chan struct{} // closed when run returns
	mu    sync.Mutex
	tails []*tail // only added to
}

func newPump(k *task) *pump {
	return &pump{k: k, wake: make(chan struct{}, 1), last: make(chan struct{}), done: make(chan struct{})}
}

// add takes up one more log.
func (p *pump) add(t *tail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tails = append(p.tails, t)
}

func (p *pump) all() []*tail {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tails[:len(p.tails):len(p.tails)]
}

// drain returns when the server has every byte of every log, or ctx is done. Nothing may be written or added after.
func (p *pump) drain(ctx context.Context) error {
	close(p.last)
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// run sends until the logs are drained or ctx is done.
func (p *pump) run(ctx context.Context) {
	defer close(p.done)
	wait, timer := firstLook, time.NewTimer(firstLook)
	defer timer.Stop()
	last := p.last
	for ended := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-last:
			ended, last = true, nil // a pass that begins from here on sees all there will ever be
		case <-p.wake:
		case <-timer.C:
		}
		moved, whole := p.pass(ctx, ended)
		switch {
		case ended && whole && !moved:
			return
		case moved:
			wait = firstLook
		default:
			wait = min(wait*3/2, lastLook)
		}
		if ended && moved {
			nudge(p.wake)
		}
		timer.Reset(wait)
	}
}

// pass gives every log its turn. moved: bytes went; whole: every log was read to its end.
func (p *pump) pass(ctx context.Context, ended bool) (moved, whole bool) {
	whole = true
	for _, t := range p.all() {
		if t.over {
			continue
		}
		n, err := p.send(ctx, t)
		moved = moved || n > 0
		if err == nil {
			t.tries = 0
			continue
		}
		whole = false
		if ended && ctx.Err() == nil {
			if t.tries++; t.tries >= maxReads {
				p.giveUp(t, err)
			}
		}
	}
	return moved, whole
}

func (p *pump) giveUp(t *tail, err error) {
	t.over = true
	p.k.warn(fmt.Sprintf("%s was cut at %d bytes: %v", t.name, t.at, err))
}

// send moves at most a turn's bytes of one log.
func (p *pump) send(ctx context.Context, t *tail) (moved int64, err error) {
	if !t.asked {
		if t.at, err = p.append(ctx, t, 0, nil); err != nil || t.over {
			return 0, err
		}
		t.asked = true
	}
	r, err := t.open(ctx, t.at)
	if errors.Is(err, fs.ErrNotExist) || trainyard.IsNotFound(err) {
		return 0, nil // nothing was written
	}
	if err != nil {
		return 0, fmt.Errorf("open log: %w", err)
	}
	defer r.Close()
	buf := p.k.a.buffers.Get().(*[chunk]byte)
	defer p.k.a.buffers.Put(buf)
	for range turn {
		n, err := io.ReadFull(r, buf[:])
		if n > 0 {
			size, err := p.append(ctx, t, t.at, buf[:n])
			if err != nil || t.over {
				return moved, err
			}
			expected := t.at + int64(n)
			moved += int64(n)
			if t.at = size; size != expected {
				return moved, nil // the server knows better where to go on
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return moved, nil
		}
		if err != nil {
			return moved, fmt.Errorf("read log: %w", err)
		}
	}
	return moved, nil
}

// append gives bytes to the server and returns how much it has. It comes back until the server takes them, refuses them for good (then
// the log is over), or ctx is done (then there is an error).
func (p *pump) append(ctx context.Context, t *tail, at int64, data []byte) (size int64, err error) {
	var tries backoff
	a := p.k.a
	for {
		l, err := a.leases.get(ctx)
		if err != nil {
			return at, err
		}
		size, err := a.cfg.Link.Append(ctx, a.cfg.Node, l.Epoch, p.k.id, t.name, at, data)
		switch {
		case ctx.Err() != nil:
			return at, ctx.Err()
		case err == nil && (len(data) == 0 || size != at):
			return size, nil
		case outdated(err):
			a.leases.drop(l)
			continue
		case refused(err):
			p.giveUp(t, err)
			return at, nil
		}
		a.log.Debug("send log", "task", p.k.id, "log", t.name, "at", at, "err", err)
		pause(ctx, tries.next())
	}
}

// refused says whether an answer will be the same next time.
func refused(err error) bool {
	code := trainyard.CodeOf(err)
	return code == trainyard.CodeInvalid || code == trainyard.CodeUnsupported || code == trainyard.CodeForbidden
}

// openFile opens a regular file below dir for a tail, never one outside it, and never waits for a pipe: what is there was made by the task.
func openFile(dir, name string, from int64) (io.ReadCloser, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, openLog, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
