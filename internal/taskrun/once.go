package taskrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// lookAgain is how often a second start looks whether the first has ended.
const lookAgain = time.Second

// lockPatience is how long the task waits for a lock that it needs only to be waited for.
const lockPatience = 5 * time.Second

// claim takes the task for this start, and no other ever gets it: an engine that dies before it has written down what it did may start a
// job twice. first is false for any but the first; release lets others see that this start is over. Where there is no folder that outlives
// the start, as in a pod, or where an earlier one is to be repeated (Fresh), every start is the first.
func (f Options) claim(t trainyard.Task) (first bool, release func(), err error) {
	if f.Result == "" || f.Fresh || strings.HasPrefix(f.Result, "/dev/") {
		return true, func() {}, nil
	}
	file, err := os.OpenFile(f.marker(t), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("mark the task as begun: %w", err)
	}
	held := make(chan struct{})
	go func() { // a folder from the network may have no locks, or wait for ever for them
		defer close(held)
		_ = hold(file) // without locks a second start cannot wait for the end of this one, and leaves at once
	}()
	select {
	case <-held:
	case <-time.After(lockPatience):
	}
	return true, func() { file.Close() }, nil
}

// marker is a file beside the task's, which goes with it.
func (f Options) marker(t trainyard.Task) string { return fmt.Sprintf("%s.%d.begun", f.File, t.Lo) }

// follow is what a second start does: it runs nothing, waits while the first one runs, and ends as that has. If the first is over and has
// left no word, neither does this one, but ends well: what becomes of the task is for whoever looks after it, and nothing is said of the
// user's command.
func (f Options) follow(ctx context.Context, t trainyard.Task) (code int, err error) {
	for looks := 0; ; looks++ {
		data, err := os.ReadFile(f.Result)
		if err == nil {
			var end trainyard.TaskEnd
			err = json.Unmarshal(data, &end)
			return status(end), err
		}
		if looks > 0 && !held(f.marker(t)) { // the first may not have come to hold it at once
			fmt.Fprintf(os.Stderr, "%s was started before, and that start ended without a word: it does not run a second time\n", t.ID.Words())
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 1, ctx.Err()
		case <-time.After(lookAgain):
		}
	}
}
