package target

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// engine is a driver in memory that may be away.
type engine struct {
	images bool // it is for tasks with an image
	away   error
	tasks  map[trainyard.TaskID]bool
	hint   chan struct{}
}

func newEngine(images bool) *engine {
	return &engine{images: images, tasks: map[trainyard.TaskID]bool{}, hint: make(chan struct{}, 1)}
}

func (e *engine) Capacity(context.Context) (trainyard.Resources, error) {
	return trainyard.Resources{CPUs: 1}, e.away
}
func (e *engine) Start(_ context.Context, t trainyard.Task) error {
	if e.away == nil {
		e.tasks[t.ID] = true
	}
	return e.away
}
func (e *engine) Observe(context.Context) (out []trainyard.Observation, err error) {
	for id := range e.tasks {
		out = append(out, trainyard.Observation{ID: id, State: trainyard.TaskRunning})
	}
	return out, e.away
}
func (e *engine) Stop(context.Context, trainyard.TaskID, time.Duration) error { return e.away }
func (e *engine) Remove(_ context.Context, id trainyard.TaskID) error {
	delete(e.tasks, id)
	return e.away
}
func (e *engine) Logs(_ context.Context, id trainyard.TaskID, _ int64) (io.ReadCloser, error) {
	if !e.tasks[id] {
		return nil, trainyard.NotFound("no task %q", id)
	}
	return io.NopCloser(strings.NewReader("said")), nil
}
func (e *engine) Changed() <-chan struct{} { return e.hint }
func (e *engine) Contains(t trainyard.Task) bool {
	return e.images && t.Environment != nil && t.Environment.Image != ""
}
func (e *engine) Prepare(context.Context, trainyard.Task, trainyard.Progress) error { return e.away }

var (
	plainTask = trainyard.Task{ID: "a/plain.1.0"}
	imageTask = trainyard.Task{ID: "a/image.1.0", Environment: &trainyard.EnvironmentPlan{Image: "python:3"}}
	errAway   = errors.New("the engine is away")
)

func ids(list []trainyard.Observation) (out []trainyard.TaskID) {
	for _, o := range list {
		out = append(out, o.ID)
	}
	slices.Sort(out)
	return out
}

func TestTasksGoToTheDriverThatContainsThem(t *testing.T) {
	plain, images := newEngine(false), newEngine(true)
	s := &Several{First: plain, Others: []Driver{images}}
	for _, task := range []trainyard.Task{plainTask, imageTask} {
		if err := s.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
	if !plain.tasks[plainTask.ID] || !images.tasks[imageTask.ID] || len(plain.tasks)+len(images.tasks) != 2 {
		t.Errorf("plain has %v, images has %v", plain.tasks, images.tasks)
	}
	if s.Contains(plainTask) || !s.Contains(imageTask) {
		t.Error("the wrong task is contained")
	}
	r, err := s.Logs(t.Context(), imageTask.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

func TestAnEngineThatIsAwayLeavesTheOthersTasksAlone(t *testing.T) {
	plain, images := newEngine(false), newEngine(true)
	s := &Several{First: plain, Others: []Driver{images}}
	if err := s.Start(t.Context(), imageTask); err != nil {
		t.Fatal(err)
	}
	images.away = errAway
	if err := s.Start(t.Context(), plainTask); err != nil {
		t.Fatal(err)
	}
	if list, err := s.ObservePart(t.Context(), plain); err != nil || !slices.Equal(ids(list), []trainyard.TaskID{plainTask.ID}) {
		t.Errorf("saw %v, %v; want the task of the engine that is there", ids(list), err)
	}
	if list, err := s.ObservePart(t.Context(), images); !errors.Is(err, errAway) {
		t.Errorf("of the engine that is away was seen %v, %v", ids(list), err)
	}
	if list, err := s.Observe(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("half a view was shown: %v, %v", ids(list), err)
	}
	if err := s.Remove(t.Context(), plainTask.ID); err != nil {
		t.Errorf("remove a task that is not the engine's: %v", err)
	}
	if err := s.Remove(t.Context(), imageTask.ID); !errors.Is(err, errAway) {
		t.Errorf("remove a task of the engine that is away: %v", err)
	}
}

func TestWhoHoldsATaskIsKnownOnceItIsSeen(t *testing.T) {
	plain, images := newEngine(false), newEngine(true)
	plain.tasks[imageTask.ID] = true // begun there while there was no engine for images
	s := &Several{First: plain, Others: []Driver{images}}
	if d, holds := s.Holder(&imageTask); d != Driver(images) || holds {
		t.Errorf("before a look %v, %v is said to hold it; want the one that would get it", d, holds)
	}
	if _, err := s.ObservePart(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	images.away = errAway
	if d, holds := s.Holder(&imageTask); d != Driver(plain) || !holds {
		t.Errorf("after a look %v, %v is said to hold it", d, holds)
	}
	if err := s.Stop(t.Context(), imageTask.ID, 0); err != nil {
		t.Errorf("stop it: %v", err)
	}
}

func TestHintsOfAllDriversArrive(t *testing.T) {
	a, b := newEngine(false), newEngine(true)
	s := &Several{First: a, Others: []Driver{b}}
	for _, e := range []*engine{a, b} {
		e.hint <- struct{}{}
		select {
		case <-s.Changed():
		case <-time.After(10 * time.Second):
			t.Fatal("no hint")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
