package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// leastServer does about the least that a server can do for a job that Slurm is to run. It takes the job by HTTP, in plain text, and answers when a
// line about it is on disk; then it hands it to sbatch and writes its number down; and once a file says that the job is over it writes that
// down, on disk again. Whoever wants to know if a job is over looks at that file. So there are no tokens, files, logs, reasons or limits, nothing is
// stopped, and nobody asks Slurm. Slurm by itself is measured with it, and the least program for tasks, to tell what a server adds that runs one sbatch
// for each job.
type leastServer struct {
	slurm   sbatch
	journal *journal
	accepts chan leastJob
	waits   chan leastJob
}

type leastJob struct{ Name, Work, Number string }

// maxLeast is how many jobs may wait in it to be handed on: more than are measured.
const maxLeast = 10000

// leastServing serves on a listener. args are what a leastServer is started with: slurm.conf, the folder for the jobs' files, and the program that
// they run in.
func leastServing(ln net.Listener, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("a least server is given %d words, not three", len(args))
	}
	file, err := os.Create(filepath.Join(args[1], "journal"))
	if err != nil {
		return err
	}
	defer file.Close()
	l := &leastServer{slurm: sbatch{conf: args[0], dir: args[1], program: args[2]}, journal: newJournal(file),
		accepts: make(chan leastJob, maxLeast), waits: make(chan leastJob, maxLeast)}
	for range submitters {
		go l.submit()
	}
	go l.watch()
	if err := http.Serve(ln, l); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// ServeHTTP takes the job that has the path as its name and the body as its work. A GET is not answered: it breaks off when this server ends.
func (l *leastServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		<-r.Context().Done()
		return
	}
	work, err := io.ReadAll(r.Body)
	j := leastJob{Name: strings.TrimPrefix(r.URL.Path, "/"), Work: string(work)}
	if err == nil {
		err = l.journal.write(j, true)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	l.accepts <- j
}

func (l *leastServer) submit() {
	for j := range l.accepts {
		number, err := l.slurm.submit(context.Background(), j.Name, j.Work)
		if err == nil {
			j.Number = number
			err = l.journal.write(j, false) // its name finds it, too
		}
		if err != nil {
			giveUp(err)
		}
		l.waits <- j
	}
}

// watch looks for jobs that are over.
func (l *leastServer) watch() {
	var running []leastJob
	for {
		var over []leastJob
		kept := running[:0]
		for _, j := range running {
			if _, err := os.Stat(l.slurm.file(j.Name)); err == nil {
				over = append(over, j)
			} else {
				kept = append(kept, j)
			}
		}
		running = kept
		for i, j := range over {
			if err := l.journal.write(j, i == len(over)-1); err != nil { // one sync for all that are seen at once
				giveUp(err)
			}
		}
		if len(running) == 0 {
			running = append(running, <-l.waits)
		}
		for len(l.waits) > 0 {
			running = append(running, <-l.waits)
		}
		time.Sleep(lookEvery)
	}
}

// giveUp ends this process, so that nothing is measured of it.
func giveUp(err error) {
	fmt.Fprintln(os.Stderr, "least server:", err)
	os.Exit(1)
}

// journal adds lines to a file. It syncs to disk for all who wait for that at once.
type journal struct {
	file  *os.File
	syncs chan chan error
}

func newJournal(file *os.File) *journal {
	j := &journal{file: file, syncs: make(chan chan error, maxLeast)}
	go j.run()
	return j
}

// write adds a line, and returns when that is on disk if it is to be synced.
func (j *journal) write(v any, synced bool) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = j.file.Write(append(text, '\n'))
	}
	if err != nil || !synced {
		return err
	}
	done := make(chan error, 1)
	j.syncs <- done
	return <-done
}

func (j *journal) run() {
	for first := range j.syncs {
		waiting := []chan error{first}
		for len(j.syncs) > 0 {
			waiting = append(waiting, <-j.syncs)
		}
		err := j.file.Sync()
		for _, done := range waiting {
			done <- err
		}
	}
}

// throughLeast is the side of a least server: jobs are posted to it, and over when their files are made.
type throughLeast struct {
	sbatch
	url string
	web *http.Client
	log string // of what it says of itself
}

func newThroughLeast(files sbatch, address, log string) throughLeast {
	return throughLeast{files, "http://" + address, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: submitters}}, log}
}

func (t throughLeast) start(context.Context, string) (time.Duration, error) {
	return 0, errors.New("a least server keeps no logs, which would say when a process started")
}

// many breaks off when the server ends, as it does when sbatch fails.
func (t throughLeast) many(ctx context.Context, name, work string, n int) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_ = t.ask(ctx, http.MethodGet, "", "")
		cancel()
	}()
	took, err := t.all(ctx, name, n, func(one string) error { return t.ask(ctx, http.MethodPost, one, work) })
	if err != nil {
		said, _ := os.ReadFile(t.log)
		return 0, fmt.Errorf("the least server's jobs: %w; it said: %s", err, said)
	}
	return took, nil
}

func (t throughLeast) ask(ctx context.Context, method, name, work string) error {
	r, err := http.NewRequestWithContext(ctx, method, t.url+"/"+name, strings.NewReader(work))
	if err != nil {
		return err
	}
	answer, err := t.web.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if said, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("job %s: %s: %s (%v)", name, answer.Status, said, err)
	}
	return nil
}
