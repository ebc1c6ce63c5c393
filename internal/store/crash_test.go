package store

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/trainyard/trainyard"
)

// acknowledge stores jobs from several goroutines, a new one and a status each time, and prints the name of each when it is durable.
func acknowledge(s *Store) {
	var wg sync.WaitGroup
	var out sync.Mutex
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				j := aJob(fmt.Sprintf("w%d-%d", w, i), "c", i%3, 1)
				err := s.Update(bg, func(tx *Tx) error {
					tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: j.Name, What: "queued"})
					return tx.InsertJob(j)
				})
				if err == nil && i%2 == 0 {
					err = s.Update(bg, func(tx *Tx) error {
						j, err := tx.Job(j.Key())
						if err != nil {
							return err
						}
						j.Status.Warnings = []string{"acknowledged"}
						return tx.PutJob(j)
					})
				}
				if err != nil {
					fmt.Println("error:", err)
					return
				}
				out.Lock()
				fmt.Println(j.Name)
				out.Unlock()
			}
		})
	}
	wg.Wait()
}

// childProcess starts the test binary in a mode of its own.
func childProcess(mode, dsn string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+mode+"="+dsn)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestWhatWasAcknowledgedIsThereAfterKill9(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		for round := range 3 {
			before := opened2(t, dsn)
			cmd := childProcess("ack", dsn)
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(pipe)
			var acked []string
			for len(acked) < 200*(round+1) && lines.Scan() {
				acked = append(acked, lines.Text())
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() { // what it said before it died counts
				acked = append(acked, lines.Text())
			}
			cmd.Wait()
			checkAcknowledged(t, dsn, acked, before)
			emptyAll(t, dsn)
		}
	})
}

// opened2 says how many events there are, from a store that is closed again.
func opened2(t *testing.T, dsn string) int {
	s := openWhenFree(t, dsn)
	defer s.Close()
	return countEvents(t, s)
}

// openWhenFree opens a database whose last user has just been killed: PostgreSQL may take a moment to see that.
func openWhenFree(t *testing.T, dsn string) *Store {
	t.Helper()
	var s *Store
	var err error
	within(t, 10e9, "the killed server's lock is free", func() bool {
		s, err = Open(context.Background(), Config{DSN: dsn, Log: slog.New(slog.DiscardHandler)})
		return !trainyard.IsConflict(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func countEvents(t *testing.T, s *Store) int {
	n, after := 0, int64(0)
	for {
		events, err := s.Events(bg, trainyard.EventQuery{After: after, Top: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			return n
		}
		n, after = n+len(events), events[len(events)-1].Seq
	}
}

func checkAcknowledged(t *testing.T, dsn string, acked []string, before int) {
	t.Helper()
	s := openWhenFree(t, dsn)
	defer s.Close()
	for _, name := range acked {
		j, err := s.Job(bg, key(name))
		if err != nil {
			t.Fatalf("acknowledged, and lost: %v (of %d)", err, len(acked))
		}
		var i int
		fmt.Sscanf(name[strings.IndexByte(name, '-')+1:], "%d", &i)
		if i%2 == 0 && len(j.Status.Warnings) != 1 {
			t.Errorf("job %s lost its second write", name)
		}
	}
	queued, _ := s.Counts(computeKey("c"))
	if events := countEvents(t, s) - before; queued < len(acked) || events != queued {
		t.Errorf("%d acknowledged, %d queued, %d events: a transaction was torn", len(acked), queued, events)
	}
}

func emptyAll(t *testing.T, dsn string) {
	t.Helper()
	s := open(t, dsn)
	defer s.Close()
	must(t, s, func(tx *Tx) error {
		for _, q := range s.QueueOf(computeKey("c")) {
			if err := tx.DeleteJob(q.Key); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestASecondServerIsRefusedInWords(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		first := childProcess("hold", dsn)
		in, err := first.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := first.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "opened\n" {
			t.Fatalf("first: %q %v", line, err)
		}
		_, err = Open(bg, Config{DSN: dsn})
		wantError(t, err, trainyard.CodeConflict, "another trainyard server", "stop it")
		if strings.HasPrefix(dsn, "sqlite:") {
			wantError(t, err, trainyard.CodeConflict, fmt.Sprintf("process %d", first.Process.Pid), strings.TrimPrefix(dsn, "sqlite:"))
		}
		io.WriteString(in, "done\n")
		if err := first.Wait(); err != nil {
			t.Error(err)
		}
		openWhenFree(t, dsn).Close()
	})
}
