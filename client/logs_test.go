package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

var trainyardEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// run is a job's log door: it says what it is told to have, and breaks as it is told to.
type run struct {
	mu     sync.Mutex
	log    []byte
	status trainyard.JobState
	grow   func() // called before each answer, with mu held
	fault  func(n int, w http.ResponseWriter, part []byte) bool
	calls  int
}

func (s *run) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/details") {
		if !strings.HasPrefix(r.URL.Path, "/history/v1.0"+workspace+"/runs/") {
			w.WriteHeader(404)
			return
		}
		logs := map[string]string{}
		if len(s.log) > 0 {
			logs["user_logs/std_log.txt"] = "https://other.name/history/log?token=t"
		}
		if s.grow != nil {
			s.grow()
		}
		answer(w, 200, map[string]any{"runId": "j", "status": s.status, "logFiles": logs})
		return
	}
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || r.URL.Path != "/history/log" || r.URL.Query().Get("token") != "t" {
		w.WriteHeader(400)
		return
	}
	if s.grow != nil {
		s.grow()
	}
	part := s.log[min(offset, int64(len(s.log))):]
	w.Header().Set("Trainyard-Log-Size", strconv.Itoa(len(s.log)))
	w.Header().Set("Trainyard-Job-Status", string(s.status))
	s.calls++
	if s.fault != nil && s.fault(s.calls, w, part) {
		return
	}
	_, _ = w.Write(part)
}

func TestFollowedLogIsWholeAndNotDoubledWhateverBreaks(t *testing.T) {
	var want bytes.Buffer
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	whole := want.Bytes()
	s := &run{status: trainyard.JobRunning}
	rng := rand.New(rand.NewPCG(1, 2))
	s.grow = func() {
		s.log = whole[:min(len(whole), len(s.log)+rng.IntN(3000))]
		if len(s.log) == len(whole) {
			s.status = trainyard.JobCompleted
		}
	}
	s.fault = func(n int, w http.ResponseWriter, part []byte) bool {
		switch {
		case n%5 == 0:
			w.WriteHeader(503)
			return true
		case n%4 == 0 && len(part) > 1: // half of it, and then nothing
			w.Header().Set("Content-Length", strconv.Itoa(len(part)))
			_, _ = w.Write(part[:len(part)/2])
			panic(http.ErrAbortHandler)
		}
		return false
	}
	c := serve(t, s.ServeHTTP)
	var got bytes.Buffer
	n, err := c.FollowLog(t.Context(), &got, "j", "", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), whole) || n != int64(len(whole)) {
		t.Errorf("%d bytes were written and %d counted of %d", got.Len(), n, len(whole))
	}
}

func TestFollowedLogGoesOnFromAnOffset(t *testing.T) {
	s := &run{status: trainyard.JobCompleted, log: []byte("old\nnew\n")}
	var got bytes.Buffer
	if _, err := serve(t, s.ServeHTTP).FollowLog(t.Context(), &got, "j", "user_logs/std_log.txt", 4, nil); err != nil || got.String() != "new\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestFollowingAJobWithoutALogEndsWithTheJob(t *testing.T) {
	s := &run{status: trainyard.JobRunning}
	n := 0
	s.grow = func() {
		if n++; n > 2 {
			s.status = trainyard.JobCanceled
		}
	}
	var got bytes.Buffer
	if _, err := serve(t, s.ServeHTTP).FollowLog(t.Context(), &got, "j", "", 0, nil); err != nil || got.Len() != 0 {
		t.Errorf("%q, %v", got.String(), err)
	}
}

func TestMainLogIsThatOfTheFirstProcess(t *testing.T) {
	for want, logs := range map[string][]string{
		"user_logs/std_log.txt":           {"user_logs/std_log.txt", "system_logs/environment.txt"},
		"user_logs/std_log_process_0.txt": {"user_logs/std_log_process_1.txt", "user_logs/std_log_process_0.txt"},
		"":                                {"system_logs/environment.txt"},
	} {
		r := Run{Logs: map[string]string{}}
		for _, l := range logs {
			r.Logs[l] = "x"
		}
		if got := r.MainLog(); got != want {
			t.Errorf("of %v: %q, want %q", logs, got, want)
		}
	}
}

func TestWatchTellsEachChangeOnce(t *testing.T) {
	states := []struct {
		status, why string
	}{{"Queued", "no node"}, {"Queued", "no node"}, {"Queued", "a node starts"}, {"Running", ""}, {"Running", ""}, {"Completed", ""}}
	n := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		s := states[min(n, len(states)-1)]
		n++
		answer(w, 200, map[string]any{"name": "j", "properties": map[string]any{"status": s.status, "reason": map[string]any{"message": s.why}, "exitCode": 0}})
	})
	var seen []string
	end, err := c.WatchJob(t.Context(), "j", func(j JobStatus) { seen = append(seen, string(j.Status)+" "+j.Reason.Message) },
		func(j JobStatus) bool { return j.Status.Terminal() })
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, "; "); got != "Queued no node; Queued a node starts; Running ; Completed " {
		t.Errorf("told %q", got)
	}
	if end.ExitCode == nil || *end.ExitCode != 0 {
		t.Errorf("exit code %v", end.ExitCode)
	}
}

func TestFollowingEndsWhenTheJobIsKnownToHaveEnded(t *testing.T) {
	ended := make(chan struct{})
	s := &run{status: trainyard.JobRunning, log: []byte("first\n")}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("offset") != "6" || r.URL.Query().Has("wait") == false {
			s.ServeHTTP(w, r)
			return
		}
		s.mu.Lock()
		s.log = []byte("first\nlast\n")
		s.mu.Unlock()
		close(ended)
		<-r.Context().Done() // the server holds the request and does not notice
	})
	var got bytes.Buffer
	if _, err := c.FollowLog(t.Context(), &got, "j", "", 0, ended); err != nil || got.String() != "first\nlast\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}
