package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	readAgain  = 2 * time.Second  // between two readings
	stale      = 10 * time.Second // a reading that is older says nothing any more
	patience   = 30 * time.Second // for nvidia-smi: where nothing keeps the driver awake it wakes it first, one GPU after the other
	countAgain = time.Minute      // until a computer that told of no GPU is asked again
	lastWait   = time.Second      // for an nvidia-smi that was killed, which in a broken driver nothing ends
)

// Reader asks this computer's nvidia-smi, one at a time, and shares what it said. Nobody waits for one that hangs. The zero value is ready.
type Reader struct {
	Again time.Duration // between two readings; 0: two seconds

	mu    sync.Mutex
	runs  chan struct{} // not nil: one is asked; closed when it has ended
	kill  context.CancelFunc
	said  bool      // one that was asked has ended
	known bool      // it said which GPUs there are, if only that there is none
	late  bool      // the first answer was waited for in vain
	at    time.Time // when the last answer was asked for
	all   []GPU     // of the last good answer
	good  time.Time // when that was asked for
	err   error     // of the last answer
}

// ask begins to ask unless somebody does or did so within the given time. The caller holds r.mu.
func (r *Reader) ask(within time.Duration) {
	if r.runs != nil || r.said && time.Since(r.at) < within {
		return
	}
	path, err := exec.LookPath(Program)
	if err != nil {
		r.said, r.known, r.at, r.err = true, true, time.Now(), fmt.Errorf("there is no %s", Program)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.runs, r.kill = make(chan struct{}), cancel
	go r.read(ctx, path, time.Now())
}

func (r *Reader) read(ctx context.Context, path string, at time.Time) {
	cmd := exec.CommandContext(ctx, path, Query()...)
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.Output()
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill()
	close(r.runs)
	r.runs, r.said, r.at, r.err = nil, true, at, nil
	r.known = r.known || !late && cmd.ProcessState.ExitCode() >= 0
	switch all := Parse(string(out)); {
	case late:
		r.err = fmt.Errorf("%s did not answer within %s", Program, patience)
	case err != nil:
		r.err = fmt.Errorf("%s: %w: %s", Program, err, FirstLine(string(out)))
	default:
		r.all, r.good = all, at
	}
}

// FirstLine is what Program says of itself where it fails: it does so on its standard output.
func FirstLine(out string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return Clean(line, 200)
}

// again is how soon a reading follows another.
func (r *Reader) again() time.Duration { return cmp.Or(r.Again, readAgain) }

// List are the GPUs that this process may use: all, or those that its own VisibleVariable names. It waits for the first answer, once. While
// there was none it is not known whether there are any: that is an error with CodeBusy.
func (r *Reader) List(ctx context.Context) ([]GPU, error) {
	r.mu.Lock()
	switch {
	case !r.known:
		r.ask(r.again())
	case len(r.all) == 0:
		r.ask(countAgain)
	}
	first := r.runs
	if r.said || r.late {
		first = nil
	}
	r.mu.Unlock()
	late := false
	if first != nil {
		select {
		case <-first:
		case <-ctx.Done():
		case <-time.After(patience + lastWait):
			late = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = r.late || late
	if !r.known {
		return nil, trainyard.Errorf(trainyard.CodeBusy, "which GPUs this computer has is not known yet: %s has not answered", Program)
	}
	return Visible(r.all, Value(os.LookupEnv(VisibleVariable))), nil
}

// Use is how busy the GPUs are that visible names (see Visible), in percent, as they were last read. It never waits: a reading goes on
// meanwhile. nil: that is not known, and why.
func (r *Reader) Use(visible string) (percent *float64, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ask(r.again())
	switch {
	case r.said && r.err != nil:
		return nil, r.err.Error()
	case !r.said:
		return nil, Program + " was not heard yet"
	case time.Since(r.good) > stale:
		return nil, fmt.Sprintf("%s has not answered for %s", Program, time.Since(r.good).Round(time.Second))
	}
	return Mean(Visible(r.all, visible))
}

// Close ends the nvidia-smi that is asked. A Reader that is used again asks again.
func (r *Reader) Close() {
	r.mu.Lock()
	runs := r.runs
	if runs != nil {
		r.kill()
	}
	r.mu.Unlock()
	if runs == nil {
		return
	}
	select {
	case <-runs:
	case <-time.After(lastWait):
	}
}
