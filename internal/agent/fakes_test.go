package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// server is a control plane of one node: it remembers what it was told and checks that it is possible.
type server struct {
	mu      sync.Mutex
	epoch   int64
	rev     int64
	wake    chan struct{}
	wanted  []trainyard.Task
	dials   []trainyard.Dial
	images  []string // that are asked for
	leaving bool
	away    bool // nobody answers
	lease   trainyard.NodeLease
	logs    map[trainyard.TaskID]map[string][]byte
	ended   map[trainyard.TaskID]trainyard.TaskReport
	history []trainyard.Report
	joins   []trainyard.NodeInfo
	wrong   []string // what must not have happened
	keep    bool     // tasks that ended stay wanted

	written func(trainyard.TaskID) []byte // what the task's processes have written to the log so far
	refuse  func(call string) error       // asked before every call

	refuseRows error // why rows that a script collects are not taken now
}

func newServer() *server {
	return &server{wake: make(chan struct{}), logs: map[trainyard.TaskID]map[string][]byte{}, ended: map[trainyard.TaskID]trainyard.TaskReport{},
		lease: trainyard.NodeLease{Renew: 5 * time.Second, Expires: 15 * time.Second}}
}

func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.rev++
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *server) want(tasks ...trainyard.Task) {
	s.change(func() { s.wanted = append(s.wanted, tasks...) })
}

func (s *server) unwant(id trainyard.TaskID) {
	s.change(func() {
		s.wanted = slices.DeleteFunc(s.wanted, func(t trainyard.Task) bool { return t.ID == id })
	})
}

func (s *server) stop(id trainyard.TaskID, why trainyard.Class) {
	s.change(func() {
		for i := range s.wanted {
			if s.wanted[i].ID == id && s.wanted[i].Stop == "" {
				s.wanted[i].Stop = why
			}
		}
	})
}

func (s *server) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// enter guards every call. The caller holds s.mu.
func (s *server) enter(call string) error {
	if s.away {
		return trainyard.Errorf(trainyard.CodeBusy, "the server cannot be reached")
	}
	if s.refuse != nil {
		return s.refuse(call)
	}
	return nil
}

func (s *server) Join(_ context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter("join"); err != nil {
		return trainyard.NodeLease{}, err
	}
	s.epoch++
	s.joins = append(s.joins, info)
	l := s.lease
	l.Epoch, l.Token = s.epoch, fmt.Sprint("token of epoch ", s.epoch)
	return l, nil
}

func (s *server) Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error) {
	hold := time.NewTimer(25 * time.Second)
	defer hold.Stop()
	for timeout := false; ; {
		s.mu.Lock()
		err, wake := s.enter("wanted"), s.wake
		if err == nil && epoch != s.epoch {
			err = trainyard.Conflict("epoch %d is old", epoch)
		}
		w := trainyard.Wanted{Epoch: s.epoch, Rev: s.rev, Tasks: slices.Clone(s.wanted), Leaving: s.leaving, Dials: slices.Clone(s.dials), Images: slices.Clone(s.images)}
		s.mu.Unlock()
		if err != nil || w.Rev > after || timeout {
			return w, err
		}
		select {
		case <-ctx.Done():
			return trainyard.Wanted{}, ctx.Err()
		case <-wake:
		case <-hold.C:
			timeout = true
		}
	}
}

func (s *server) Report(_ context.Context, r trainyard.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter("report"); err != nil {
		return err
	}
	if r.Epoch != s.epoch {
		return trainyard.Conflict("epoch %d is old", r.Epoch)
	}
	s.history = append(s.history, r)
	news := false
	for _, t := range r.Tasks {
		if _, ok := s.ended[t.ID]; ok || t.State != trainyard.TaskEnded {
			continue
		}
		s.ended[t.ID], news = t, true
		if t.Result == nil {
			s.wrong = append(s.wrong, fmt.Sprintf("%s ended without a result", t.ID))
		}
		if s.written != nil && t.Result.ExitCode >= 0 && !bytes.Equal(s.written(t.ID), s.stdLog(t.ID)) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s was reported ended with %d of %d log bytes", t.ID, len(s.stdLog(t.ID)), len(s.written(t.ID))))
		}
		if !s.keep {
			s.wanted = slices.DeleteFunc(s.wanted, func(w trainyard.Task) bool { return w.ID == t.ID })
		}
	}
	if news {
		s.rev++
		close(s.wake)
		s.wake = make(chan struct{})
	}
	return nil
}

func (s *server) stdLog(id trainyard.TaskID) []byte { return s.logs[id]["user_logs/std_log.txt"] }

func (s *server) Append(_ context.Context, _ trainyard.NodeID, epoch int64, id trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter("append"); err != nil {
		return 0, err
	}
	if epoch != s.epoch {
		return 0, trainyard.Conflict("epoch %d is old", epoch)
	}
	if s.logs[id] == nil {
		s.logs[id] = map[string][]byte{}
	}
	if strings.HasPrefix(name, trainyard.CollectedLog) {
		if s.refuseRows != nil {
			return 0, s.refuseRows
		}
		s.logs[id][name] = append(s.logs[id][name], data...)
		return offset + int64(len(data)), nil
	}
	have := int64(len(s.logs[id][name]))
	if end := offset + int64(len(data)); offset <= have && end > have {
		s.logs[id][name] = append(s.logs[id][name], data[have-offset:]...)
	}
	return int64(len(s.logs[id][name])), nil
}

func (s *server) Open(context.Context, string, int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return nil, trainyard.BlobInfo{}, trainyard.NotFound("no such blob")
}
func (s *server) List(context.Context, string) ([]trainyard.BlobInfo, error) { return nil, nil }
func (s *server) Put(context.Context, string, io.Reader) error               { return nil }

// log is what the server has of a log.
func (s *server) log(id trainyard.TaskID, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.logs[id][name])
}

// joined and told are what agents have said so far.
func (s *server) joined() []trainyard.NodeInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.joins)
}

func (s *server) told() []trainyard.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history)
}

// result is how the server was told that a task ended.
func (s *server) result(id trainyard.TaskID) *trainyard.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[id].Result
}

func (s *server) report(id trainyard.TaskID) trainyard.TaskReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[id]
}

// states are the states of a task that were reported, in order, without repeats.
func (s *server) states(id trainyard.TaskID) []trainyard.TaskState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []trainyard.TaskState
	for _, r := range s.history {
		for _, t := range r.Tasks {
			if t.ID == id {
				out = append(out, t.State)
			}
		}
	}
	return slices.Compact(out)
}

// stage is a Stager that needs no bytes.
type stage struct {
	mu       sync.Mutex
	here     map[trainyard.TaskID]bool
	prepare  func(ctx context.Context, t trainyard.Task, p trainyard.Progress) error
	finish   func(ctx context.Context, t trainyard.Task, r trainyard.Result, p trainyard.Progress) error
	finished int
}

func newStage() *stage { return &stage{here: map[trainyard.TaskID]bool{}} }

func (s *stage) Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) (trainyard.Task, error) {
	s.mu.Lock()
	s.here[t.ID] = true
	s.mu.Unlock()
	if s.prepare != nil {
		if err := s.prepare(ctx, t, p); err != nil {
			return t, err
		}
	}
	t.Run.Command, t.Run.Env = t.Command, maps.Clone(t.Env)
	return t, nil
}

func (s *stage) Finish(ctx context.Context, t trainyard.Task, r trainyard.Result, p trainyard.Progress) error {
	s.mu.Lock()
	s.finished++
	s.mu.Unlock()
	if s.finish != nil {
		return s.finish(ctx, t, r, p)
	}
	return nil
}

func (s *stage) Remove(_ context.Context, id trainyard.TaskID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.here, id)
	return nil
}

func (s *stage) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.here)
}
