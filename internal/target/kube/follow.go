package kube

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/trainyard/trainyard/internal/target/kube/podlog"
)

//go:embed heard.sh
var heardScript string

// follower copies the log of a pod while the task runs.
type follower struct {
	d      *Driver
	task   *task
	pod    string
	cancel context.CancelFunc
	done   chan struct{}
	kick   chan struct{} // closed when the container has ended

	mu     sync.Mutex
	note   string             // what is missing of the log
	size   int64              // of what there is of it
	spool  *spool             // where it is copied to
	stream context.CancelFunc // of the copying that goes on
	last   bool               // the container has ended: read once more, to the end
	gone   bool               // and its log may be going
	whole  int64              // how long the log is, as the program told at its end; 0 if it did not
	told   bool               // it did
	ended  bool               // the copying came to the log's end by itself

	tells  func(ctx context.Context, at int64) error // has the pod know how much of the log there is
	pause  *time.Timer                               // until it counts as read to its end for the moment
	at     int64                                     // how much of it there is,
	weight int64                                     // and what was read of it weighs
	said   int64                                     // that weight when the pod was told last,
	base   int64                                     // at a time from which the program may have printed on,
	first  int64                                     // and when it was told for the first time after podlog.Step from there; 0 if it was not yet
	all    int64                                     // until which it is told at every pause: who read the log before us is not known to have said how much
}

const (
	logRetry  = 300 * time.Millisecond // between tries to read a log
	logEnded  = 5 * time.Second        // to the next when one has come to its end, which the container's end is about to be told of, too
	logEnds   = time.Second            // which a container's log takes to come to its end once the container has
	logTries  = 100                    // to read the last of one, while the API server answers
	lastWords = 3 * time.Second        // how long the log of a pod that is being deleted is listened to
)

// follow starts to copy.
func (d *tender) follow(ctx context.Context, pod string) {
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{d: d.Driver, task: d.task, pod: pod, cancel: cancel, done: make(chan struct{}), kick: make(chan struct{})}
	f.tells = func(ctx context.Context, at int64) error {
		ctx, cancel := context.WithTimeout(ctx, haltPatience)
		defer cancel()
		return d.api.exec(ctx, pod, false, nil, io.Discard, heardScript, strconv.FormatInt(at, 10), f.task.name)
	}
	d.log = f
	d.members.Go(func() {
		defer close(f.done)
		defer cancel()
		f.run(ctx)
	})
}

func (f *follower) stop() {
	f.cancel()
	<-f.done
}

// finish has the rest of the log read, and returns when it is.
func (f *follower) finish(ctx context.Context, s *sight, gone bool) {
	whole, told := int64(0), false
	if s.main == "" { // the log of a replica that was started again is longer than what the last one wrote
		whole, _, told = f.written(s)
	}
	f.mu.Lock()
	f.whole, f.told = whole, told
	if !f.last {
		close(f.kick)
	}
	f.last, f.gone = true, gone
	stream, spool := f.stream, f.spool
	f.mu.Unlock()
	wait := time.Duration(0)
	if told { // it is about to come to its end by itself
		wait = logEnds
	}
	if gone { // the copying that goes on may be all that there will be
		wait = lastWords
	}
	for stream != nil {
		copied := spool.copied.Load()
		select {
		case <-f.done:
			stream = nil
		case <-ctx.Done():
			stream = nil
		case <-time.After(wait):
			if wait > 0 && spool.copied.Load() > copied {
				continue // who begins anew would find less: a node throws the oldest away
			}
			stream()
			stream = nil
		}
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		f.stop()
	}
}

func (f *follower) run(ctx context.Context) {
	s, err := openSpool(f.task.dir)
	if err != nil {
		f.fail(err)
		return
	}
	defer s.close()
	if !f.serves() { // a server's own output is nothing that a program of ours could hold back
		defer f.tellOf(ctx, s)()
	}
	f.mu.Lock()
	f.spool = s
	f.mu.Unlock()
	for tries := 0; ; {
		last, err := f.pass(ctx, s)
		f.mu.Lock()
		f.size = s.size
		f.mu.Unlock()
		if s.lost {
			f.say("part of the log is missing: its node threw it away before it was read")
		}
		switch {
		case ctx.Err() != nil, last && err == nil:
			return
		case last && !isAway(err):
			if tries++; isMissing(err) || tries >= logTries {
				f.fail(err)
				return
			}
		}
		kick, wait := f.kick, logRetry
		if last {
			kick = nil
		} else if err == nil && !f.serves() { // the container of a replica is started again
			wait = logEnded
		}
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-time.After(wait):
		}
	}
}

// pass copies once: to the end if the container has ended, while it runs otherwise.
func (f *follower) pass(ctx context.Context, s *spool) (last bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	last, f.stream = f.last, cancel
	s.whole = f.whole
	all := f.told && f.ended && s.size == f.whole // there may be more than the program counts: what it says itself, what others write to it
	f.mu.Unlock()
	if last && all {
		return true, nil
	}
	if last {
		bounded, stop := context.WithTimeout(ctx, patience)
		defer stop()
		return true, f.d.readLog(bounded, s, f.pod, f.container(), false)
	}
	err = f.d.readLog(ctx, s, f.pod, f.container(), true)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stream, f.ended = nil, err == nil
	return err == nil && f.last && f.gone, err // whole, and nobody will tell it again
}

const (
	quiet      = 100 * time.Millisecond // for which nothing comes of a log that was read to its end
	mostUntold = 64 << 10               // of the weight that the pod need not be told of
	mostAhead  = podlog.Most + 1<<20    // of the weight that there can be to read after the program has heard, and some to be sure
)

// grown notes how much of the log there is. When the program may soon wait for it, it is told at the next pause.
func (f *follower) grown(at, weight int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.weight = at, weight
	if f.first > 0 && weight-f.base > mostAhead { // so it has heard it
		f.base, f.first = f.first, 0
	}
	if weight-f.said >= mostUntold && (weight <= f.all || weight-f.base >= podlog.Step) {
		f.pause.Reset(quiet)
	}
}

// tellOf has the program in the pod know how much of its log is here: it goes only so far ahead as its node keeps what was not read. Call what
// it returns in the end.
func (f *follower) tellOf(ctx context.Context, s *spool) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	due, done := make(chan struct{}, 1), make(chan struct{})
	f.pause = time.AfterFunc(time.Hour, func() {
		select {
		case due <- struct{}{}:
		default:
		}
	})
	f.pause.Stop()
	s.grown = f.grown
	if s.size >= mostUntold {
		f.said, f.all = -mostUntold, mostAhead
		f.grown(s.size, 0)
	}
	go func() {
		defer close(done)
		f.tell(ctx, due)
	}()
	return func() {
		f.pause.Stop()
		cancel()
		<-done
	}
}

func (f *follower) tell(ctx context.Context, due <-chan struct{}) {
	var again <-chan time.Time
	for tries := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-again:
		}
		f.mu.Lock()
		f.said = f.weight
		at, weight, last := f.at, f.weight, f.last
		f.mu.Unlock()
		if last { // nobody waits for it any more
			return
		}
		err := f.tells(ctx, at)
		if again = nil; err == nil {
			tries = 0
			f.mu.Lock()
			if f.first == 0 && weight-f.base >= podlog.Step {
				f.first = weight
			}
			f.mu.Unlock()
			continue
		}
		f.d.env.Log.Debug("say how much of the log was read", "task", f.task.id, "pod", f.pod, "err", err)
		tries++
		again = time.After(min(time.Duration(tries)*time.Second, 10*time.Second))
	}
}

// container is the one whose log is the task's.
func (f *follower) container() string {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return cmp.Or(f.task.rec.Main, containerName)
}

func (f *follower) serves() bool {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.task.rec.Main != ""
}

func (f *follower) say(note string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note = note
}

// written is how much the program says that it wrote to the log, on which node.
func (f *follower) written(s *sight) (bytes int64, node string, told bool) {
	for _, p := range s.pods {
		if c := p.container(); p.Meta.Name == f.pod && c != nil && c.State.Terminated != nil {
			left, ok := readEnd(c.State.Terminated.Message)
			return left.written, p.Spec.Node, ok
		}
	}
	return 0, "", false
}

// missing says what is missing of the log, "" if nothing is.
func (f *follower) missing(s *sight) string {
	whole, node, told := f.written(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if lost := whole - f.size; told && lost > 0 && f.note == "" {
		return fmt.Sprintf("%d bytes of the log are missing: node %s threw them away before they were read", lost, node)
	}
	return f.note
}

// fail notes that the end of the log could not be had.
func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone && isMissing(err) {
		f.d.env.Log.Debug("the log went with its pod", "task", f.task.id, "pod", f.pod)
		return
	}
	f.note = "the end of the log may be missing: " + err.Error()
	f.d.env.Log.Warn("read log", "task", f.task.id, "pod", f.pod, "err", err)
}
