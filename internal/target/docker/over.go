package docker

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/trainyard/trainyard"
)

// removePatience bounds how long a container whose first process is gone may take to be gone itself, before it is ended by force.
const removePatience = 5 * time.Second

// hear notes the task's end when the first process of its container is gone and has told all, which is a tenth of a second and more before
// the engine has cleared the container away and says so. That process holds a pipe until then. Where no pipe reaches into the container,
// as on a computer that runs its engine in a virtual machine, and for tasks of an agent before us, the engine's word is waited for.
func (d *Driver) hear(t *task) {
	root, err := os.OpenRoot(d.path(t, boxDir))
	if err != nil {
		return
	}
	defer root.Close()
	f, err := root.OpenFile(overFile, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return
	}
	if info, err := f.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe { // the task has put something in its place
		f.Close()
		return
	}
	d.goes.Go(func() {
		defer f.Close()
		defer context.AfterFunc(d.run, func() { f.Close() })()
		var word [1]byte
		if _, err := f.Read(word[:]); !errors.Is(err, io.EOF) {
			return // closed; or somebody has written into it, who is none of ours
		}
		if st := d.readStatus(t.id); !st.ended || !st.counts {
			return
		}
		d.mu.Lock()
		t.early = !t.died
		t.died = true
		d.mu.Unlock()
		d.signal()
	})
}

// awaitDeath waits until the engine, too, has seen the end of a task that is known to be over: until then it takes the container for one
// that runs, and would end it by force.
func (d *Driver) awaitDeath(ctx context.Context, t *task) {
	d.mu.Lock()
	wait := t.early && d.listening
	d.mu.Unlock()
	if !wait {
		return
	}
	select {
	case <-t.dead:
	case <-ctx.Done():
	case <-time.After(removePatience):
	}
}

// isOver says whether a task is known to be over.
func (d *Driver) isOver(id trainyard.TaskID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[id.Dir()]
	return t != nil && t.end != nil
}

// sawDeath notes that the engine has said that a task's container is over.
func (d *Driver) sawDeath(id trainyard.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tasks[id.Dir()]
	if t == nil {
		return
	}
	if t.died = true; t.early {
		t.early = false
		close(t.dead)
	}
}
