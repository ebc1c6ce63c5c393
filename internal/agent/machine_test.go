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

// machine is a target.Driver whose processes are made up. It outlives agents, as a machine does.
type machine struct {
	changed chan struct{}

	mu     sync.Mutex
	procs  map[trainyard.TaskID]*proc
	starts map[trainyard.TaskID]int
	stops  map[trainyard.TaskID]int
	note   string
	fail   func(call string) error
}

// proc is a process that writes and ends as its program says.
type proc struct {
	m        *machine
	task     trainyard.Task
	started  time.Time
	ended    time.Time
	result   *trainyard.Result
	late     time.Duration // how long after SIGTERM it was killed
	log      []byte
	signaled chan struct{} // SIGTERM
	killed   chan struct{} // SIGKILL, or ended otherwise
	once     sync.Once
}

// programs are what made-up commands do: they return the exit code. They may be run in any number.
type programs map[string]func(p *proc) int

func newMachine() *machine {
	return &machine{changed: make(chan struct{}, 1), procs: map[trainyard.TaskID]*proc{}, starts: map[trainyard.TaskID]int{}, stops: map[trainyard.TaskID]int{}}
}

// off is the end of the machine.
func (m *machine) off() {
	m.mu.Lock()
	m.fail = nil
	ids := slices.Collect(maps.Keys(m.procs))
	m.mu.Unlock()
	for _, id := range ids {
		_ = m.Remove(context.Background(), id)
	}
}

func (m *machine) hint() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *machine) Changed() <-chan struct{} { return m.changed }

func (m *machine) enter(call string) error {
	if m.fail != nil {
		return m.fail(call)
	}
	return nil
}

func (m *machine) Capacity(context.Context) (trainyard.Resources, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return trainyard.Resources{CPUs: 4, MemoryMB: 1000, Slots: 4}, m.enter("capacity")
}

// talkSize is how many bytes the program "talk" writes.
const talkSize = 1500 * 4000

var library = programs{
	"true":   func(p *proc) int { return 0 },
	"false":  func(p *proc) int { return 1 },
	"hello":  func(p *proc) int { p.write("hello\n"); return 0 },
	"sleep":  func(p *proc) int { return p.sleep(time.Minute) },
	"ignore": func(p *proc) int { <-p.killed; return 137 },
	"talk": func(p *proc) int { // some megabytes in two seconds
		for i := range talkSize / 4000 {
			p.write(strings.Repeat(fmt.Sprintf("%08d ", i%100_000_000), 444) + "0123")
			p.sleep(time.Millisecond)
		}
		return 0
	},
	"linger": func(p *proc) int { <-p.signaled; p.sleepOn(3 * time.Second); return 143 },
	"count": func(p *proc) int {
		for i := range 100 {
			p.write(fmt.Sprintf("line %d\n", i))
			if code := p.sleep(70 * time.Millisecond); code != 0 {
				p.write("got SIGTERM\n")
				return code
			}
		}
		return 7
	},
}

func (m *machine) Start(_ context.Context, t trainyard.Task) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("start"); err != nil {
		return err
	}
	if m.procs[t.ID] != nil {
		return nil
	}
	p := &proc{m: m, task: t, started: time.Now(), signaled: make(chan struct{}), killed: make(chan struct{})}
	m.procs[t.ID] = p
	m.starts[t.ID]++
	m.hint()
	program := library[t.Run.Command]
	if program == nil { // the launcher's script
		program = func(p *proc) int { p.write("out of rank 0\n"); return 0 }
	}
	go func() { p.end(program(p)) }()
	return nil
}

func (p *proc) write(s string) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.result == nil {
		p.log = append(p.log, s...)
	}
}

// sleep returns 143 if the process is told to end meanwhile.
func (p *proc) sleep(d time.Duration) int {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return 0
	case <-p.signaled:
		return 143
	case <-p.killed:
		return 137
	}
}

// sleepOn does not listen.
func (p *proc) sleepOn(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.killed:
	}
}

// kill ends what was asked to end and had not when its grace was over.
func (p *proc) kill(grace time.Duration) {
	p.m.mu.Lock()
	if p.result == nil {
		p.late = grace
	}
	p.m.mu.Unlock()
	p.end(128 + 9)
}

func (p *proc) end(code int) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.result != nil {
		return
	}
	class := trainyard.ClassOK
	if code != 0 {
		class = trainyard.ClassUser
	}
	p.ended, p.result = time.Now(), &trainyard.Result{Class: class, ExitCode: code, PeakMB: 3}
	close(p.killed)
	p.m.hint()
}

func (m *machine) Observe(context.Context) ([]trainyard.Observation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("observe"); err != nil {
		return nil, err
	}
	var out []trainyard.Observation
	for _, id := range slices.Sorted(maps.Keys(m.procs)) {
		p := m.procs[id]
		o := trainyard.Observation{ID: id, State: trainyard.TaskRunning, Started: p.started, Ended: p.ended, Result: p.result, Killed: p.late}
		if m.note != "" {
			o.Notes = []string{m.note}
		}
		if p.result != nil {
			o.State = trainyard.TaskEnded
		}
		out = append(out, o)
	}
	return out, nil
}

func (m *machine) Stop(_ context.Context, id trainyard.TaskID, grace time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("stop"); err != nil {
		return err
	}
	m.stops[id]++
	if p := m.procs[id]; p != nil {
		p.once.Do(func() {
			close(p.signaled)
			time.AfterFunc(grace, func() { p.kill(grace) })
		})
	}
	return nil
}

func (m *machine) Remove(_ context.Context, id trainyard.TaskID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("remove"); err != nil {
		return err
	}
	if p := m.procs[id]; p != nil {
		p.once.Do(func() { close(p.signaled) })
		if p.result == nil {
			p.result = &trainyard.Result{Class: trainyard.ClassUser, ExitCode: 137}
			close(p.killed)
		}
		delete(m.procs, id)
		m.hint()
	}
	return nil
}

func (m *machine) Logs(_ context.Context, id trainyard.TaskID, from int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter("logs"); err != nil {
		return nil, err
	}
	p := m.procs[id]
	if p == nil {
		return nil, trainyard.NotFound("task %q is not here", id)
	}
	return io.NopCloser(bytes.NewReader(bytes.Clone(p.log[min(from, int64(len(p.log))):]))), nil
}

// written is the log of a task on the machine.
func (m *machine) written(id trainyard.TaskID) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.procs[id]; p != nil {
		return bytes.Clone(p.log)
	}
	return nil
}

func (m *machine) count() (procs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.procs)
}

func (m *machine) stopped(id trainyard.TaskID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stops[id]
}

func (m *machine) started(id trainyard.TaskID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts[id]
}
