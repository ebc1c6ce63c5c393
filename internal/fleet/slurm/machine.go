package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// What lies in the folder that nodes see, and in a machine's folder there.
const (
	machinesFolder = "machines"
	statesFolder   = "states"
	sharedFolder   = "bin"

	recordFile = "machine.json"
	tokenFile  = "join-token"
	agentFile  = "agent.sh"
	goFile     = "go"
	logFile    = "agent.log"
	slurmFile  = "slurm.out"
	noticeFile = "notice"
	nodeFolder = "node"

	goneFolder = ".gone-" // a machine's folder on its way out
)

// record is what is written down of a machine.
type record struct {
	ID      trainyard.NodeID     `json:"id"`
	Compute trainyard.ComputeKey `json:"compute"`
	Mark    string               `json:"mark,omitempty"` // name of its job; "" until the first is submitted
	Lost    lost                 `json:"lost,omitzero"`  // how the job before that ended
}

func (d *Driver) path(name, file string) string {
	return filepath.Join(d.base, machinesFolder, name, file)
}

func (d *Driver) statePath(name string) string { return filepath.Join(d.base, statesFolder, name) }

// read returns what is written down of a machine; fs.ErrNotExist means that there is no such machine.
func (d *Driver) read(name string) (record, error) {
	data, err := slurm.Read(d.client, d.path(name, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := d.client.Stat(d.path(name, "")); err == nil {
			return record{ID: trainyard.NodeID(name)}, nil // its making was cut short
		}
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of machine %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || r.ID == "" {
		return record{}, fmt.Errorf("the record of machine %s is damaged (%v); take the folder %s away if no job of Slurm is its", name, err, d.path(name, ""))
	}
	return r, nil
}

func (d *Driver) save(name string, r record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = slurm.Put(d.client, d.path(name, recordFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the record of machine %s: %w", name, err)
	}
	return nil
}

// order is the text of a machine's file go, which asks the batch script of one job to start an agent.
type order struct {
	job    string // its name
	number string // no two are alike
	server string // that the agent is to dial
}

func (o order) String() string { return o.job + " " + o.number + " " + o.server }

func parseOrder(words []string) order {
	if len(words) < 3 {
		return order{}
	}
	return order{words[0], words[1], strings.Join(words[2:], " ")}
}

// said is what a machine's batch script last said.
type said struct {
	up   bool
	down string // the agent's exit status
	by   order  // that it started the agent by
	last order  // that it was given
}

// asked says whether the script has another agent to start.
func (s said) asked() bool { return s.by.job != "" && s.by != s.last }

// dials says whether the agent that the script started dials a server.
func (s said) dials(server string) bool { return s.by.job == "" || s.by.server == server }

func (d *Driver) said(name string, r record) (said, error) {
	data, err := slurm.Read(d.client, d.statePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return said{}, nil
	}
	if err != nil {
		return said{}, err
	}
	last, err := slurm.Read(d.client, d.path(name, goFile)) // second: what the script has seen of it is not newer
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return said{}, err
	}
	words := append(strings.Fields(string(data)), "", "")
	s := said{up: words[0] == "up", by: parseOrder(words[2:max(2, len(words)-2)]), last: parseOrder(strings.Fields(string(last)))}
	if words[0] == "down" {
		s.down = words[1]
	}
	if s.by.job != "" && s.by.job != r.Mark {
		return said{}, nil // the last word of a job before this one
	}
	return s, nil
}

// Machines lists every machine here, or fails: half a view is none.
func (d *Driver) Machines(ctx context.Context) ([]trainyard.Machine, error) {
	if err := d.settle(ctx); err != nil {
		return nil, err
	}
	entries, err := d.client.List(filepath.Join(d.base, machinesFolder))
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var out []trainyard.Machine
	var queue map[string]slurm.Job
	fresh := false
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		r, err := d.read(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went while we looked
		}
		if err != nil {
			return nil, err
		}
		if queue == nil { // after the folders were listed: what is in one of them has been submitted
			if queue, err = d.jobs(ctx, time.Second); err != nil {
				return nil, fmt.Errorf("ask Slurm for its jobs: %w", err)
			}
		}
		if _, known := queue[r.Mark]; !known && r.Mark != "" && !fresh { // it may be newer than what Slurm said
			if queue, err = d.jobs(ctx, 0); err != nil {
				return nil, fmt.Errorf("ask Slurm for its jobs: %w", err)
			}
			fresh = true
		}
		m := trainyard.Machine{ID: r.ID, Compute: r.Compute}
		if m.State, m.Note, err = d.state(e.Name(), r, queue); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// state is how a machine is, and why.
func (d *Driver) state(name string, r record, queue map[string]slurm.Job) (trainyard.MachineState, string, error) {
	j, known := queue[r.Mark]
	s, err := d.said(name, r)
	switch {
	case err != nil:
		return "", "", err
	case !known && d.turns.Taken(name):
		return trainyard.MachineStarting, "being handed to Slurm", nil
	case r.Mark == "":
		return trainyard.MachineDead, "it was not handed to Slurm", nil
	case known && j.State == slurm.Pending:
		return trainyard.MachineStarting, j.Why(), nil
	case known && j.State == slurm.Completing: // with what runs there; then it is dead
		return trainyard.MachineStarting, fmt.Sprintf("Slurm is ending its job %s, before it can have another", j.ID), nil
	case !known || j.Ended():
		return trainyard.MachineDead, d.ending(name, j, s), nil
	case s.up && !s.dials(d.env.Server): // Grow has it replaced
		return trainyard.MachineDead, fmt.Sprintf("its agent dials %s, where the server is no more", s.by.server), nil
	case s.up && s.asked():
		return trainyard.MachineDead, "its agent is about to be replaced", nil
	case s.up:
		return trainyard.MachineRunning, "", nil
	case s.down == "":
		return trainyard.MachineStarting, "Slurm: its job starts on " + j.NodeList, nil
	case s.asked():
		return trainyard.MachineStarting, "its agent is started again", nil
	}
	return trainyard.MachineDead, d.lastWord(name, s), nil
}

// lost is how a job of a machine's ended, as what ran in it is to say.
type lost struct {
	Class trainyard.Class `json:"class,omitempty"`
	Words string          `json:"words,omitempty"`
}

// lostBy says what it is for a task when the job that it ran in has ended as j says. A j without a state is one that nobody knows any more.
func lostBy(j slurm.Job) lost {
	l := lost{Class: trainyard.ClassNodeLost}
	switch {
	case j.State == slurm.Preempted:
		l.Class, l.Words = trainyard.ClassPreempted, fmt.Sprintf("Slurm took its node (job %s) for a job that goes before it (preempted)", j.ID)
	case j.State == slurm.Requeued:
		l.Class, l.Words = trainyard.ClassPreempted, fmt.Sprintf("Slurm took its node away and put job %s back in its queue (requeue)", j.ID)
	case j.State == slurm.Timeout:
		l.Words = fmt.Sprintf("Slurm ended job %s, which its node was, at its time limit", j.ID)
	case j.State == slurm.Cancelled:
		l.Words = fmt.Sprintf("job %s, which its node was, was canceled in Slurm (scancel)", j.ID)
	case j.State == slurm.NodeFail, j.State == slurm.BootFail:
		l.Words = fmt.Sprintf("Slurm says that its node failed (job %s, %s)", j.ID, j.State)
	case j.State == "":
		l.Words = "Slurm does not know the job any more that its node was"
	default:
		l.Words = fmt.Sprintf("job %s, which its node was, ended in Slurm (%s)", j.ID, j.State)
	}
	return l
}

// ending says why a machine's job is over.
func (d *Driver) ending(name string, j slurm.Job, s said) string {
	switch {
	case j.State == slurm.Failed, j.State == slurm.Completed && s.down != "":
		return d.lastWord(name, s)
	case j.State == "":
		return "Slurm does not know its job any more"
	case j.State == slurm.Timeout:
		return "Slurm ended it at its time limit of " + j.TimeLimit
	case j.State == slurm.Preempted:
		return "Slurm took it for a job that goes before it (preempted)"
	case j.State == slurm.Cancelled:
		return "its job was canceled in Slurm (scancel)"
	}
	return fmt.Sprintf("Slurm ended its job (%s)", j.State)
}

// lastWord says how an agent ended, and the last thing that it or Slurm said.
func (d *Driver) lastWord(name string, s said) string {
	note := "its agent ended"
	if s.down == "" {
		note = "its agent could not be started"
	} else {
		note += " with exit status " + s.down
	}
	last := slurm.Tail(d.client, d.path(name, logFile))
	if last == "" {
		last = slurm.Tail(d.client, d.path(name, slurmFile))
	}
	if last != "" {
		note += ": " + last
	}
	return note
}

// jobs are our jobs by name, as Slurm said at most age ago.
func (d *Driver) jobs(ctx context.Context, age time.Duration) (map[string]slurm.Job, error) {
	d.looking.Lock()
	defer d.looking.Unlock()
	if age > 0 && time.Since(d.asked) < max(age, 20*d.took) {
		return d.queue, nil
	}
	asked := time.Now()
	list, err := d.client.Queue(ctx)
	if err != nil {
		return nil, err
	}
	queue := map[string]slurm.Job{}
	for _, j := range list {
		if have, twice := queue[j.Name]; strings.HasSuffix(j.Name, d.suffix) && (!twice || have.Ended()) {
			queue[j.Name] = j
		}
	}
	d.queue, d.asked, d.took = queue, asked, time.Since(asked)
	return queue, nil
}

// forget makes the next look ask Slurm.
func (d *Driver) forget() {
	d.looking.Lock()
	defer d.looking.Unlock()
	d.asked = time.Time{}
}
