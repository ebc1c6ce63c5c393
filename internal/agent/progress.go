package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// progress is what a stager says of a task.
type progress struct{ k *task }

func (p progress) Say(text string) {
	p.k.change(soon, func(r *trainyard.TaskReport) { r.Progress = text })
}

func (p progress) Span(name string, start, end time.Time, note string) {
	s := trainyard.Span{Name: name, Start: start, End: end, Note: note}
	p.k.change(soon, func(r *trainyard.TaskReport) {
		same := func(o trainyard.Span) bool { return o.Name == name && o.Start.Equal(start) }
		if i := slices.IndexFunc(r.Spans, same); i >= 0 {
			r.Spans[i] = s
			return
		}
		r.Spans = append(r.Spans, s)
	})
}

func (p progress) Log(name string, data []byte) {
	fresh, err := p.k.appendLog(name, data)
	if err != nil {
		p.k.warn(fmt.Sprintf("%s is not whole: %v", name, err))
		return
	}
	if fresh {
		p.k.pump.add(p.k.fileTail(p.k.base+logsFolder, filepath.FromSlash(name), name))
	}
}

// appendLog adds to one of the task's own log files; fresh says that it was made.
func (k *task) appendLog(name string, data []byte) (fresh bool, err error) {
	k.logMu.Lock()
	defer k.logMu.Unlock()
	path := logFile(k.base, name)
	if path == "" {
		return false, trainyard.Invalid("%q is no name for a log", name)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if os.IsNotExist(err) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return false, err
		}
		fresh = true
		f, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if err != nil {
		return false, err
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	return fresh, err
}
