package slurm

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

func TestGangOfTwoIsOneJob(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	task := makeTask(t, "gang", `echo "rank $RANK of $HOSTS on $SLURMD_NODENAME with $SLURM_CPUS_PER_TASK"; [ $RANK = 0 ] || echo second >&2`, 2)
	task.Resources.CPUs = 2
	start(t, d, task)
	o := ended(t, d, task.ID)
	if o.Result.Class != trainyard.ClassOK {
		t.Fatalf("%+v; Slurm says %s", *o.Result, slurm.Tail(d.client, d.path(task.ID.Dir(), slurmFile)))
	}
	if got := logOf(t, d, task.ID); !strings.HasPrefix(got, "rank 0 of 127.0.0.1,127.0.0.1 on n") || !strings.HasSuffix(got, " with 2\n") {
		t.Errorf("first rank wrote %q", got)
	}
	second, err := os.ReadFile(d.path(task.ID.Dir(), logFile+".1"))
	if err != nil || !strings.Contains(string(second), "rank 1 of") || !strings.Contains(string(second), "second") {
		t.Errorf("second rank wrote %q, %v", second, err)
	}
	if jobs, err := d.client.Queue(t.Context(), d.tasks[task.ID.Dir()].rec.Mark); err != nil || len(jobs) != 1 || jobs[0].Nodes != 2 {
		t.Errorf("jobs are %+v, %v", jobs, err)
	}
}

func TestRankThatFailsEndsTheOthers(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	task := makeTask(t, "half", `[ $RANK = 1 ] && exit 9; trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done`, 2)
	task.Grace = 30 * time.Second
	start(t, d, task)
	o := ended(t, d, task.ID)
	if o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 9 || !strings.HasPrefix(o.Result.Message, "rank 1: ") {
		t.Errorf("result is %+v, want that of rank 1", *o.Result)
	}
	if got := logOf(t, d, task.ID); !strings.HasSuffix(got, "asked\n") { // before it the shell says what became of its children
		t.Errorf("the other rank wrote %q", got)
	}
}

func TestGangIsStoppedOnAllItsNodes(t *testing.T) {
	s := lab(t)
	for name, trap := range map[string]string{"asked": "exit 0", "made": "true"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, s, t.TempDir())
			task := makeTask(t, "gang-"+name, "trap 'echo TERM; "+trap+"' TERM; echo up; while :; do sleep 0.05; done", 2)
			start(t, d, task)
			until(t, time.Minute, "both are up", func() bool {
				second, _ := os.ReadFile(d.path(task.ID.Dir(), logFile+".1"))
				return logOf(t, d, task.ID) == "up\n" && string(second) == "up\n"
			}, func() string { return logOf(t, d, task.ID) })
			if err := d.Stop(t.Context(), task.ID, 2*time.Second); err != nil {
				t.Fatal(err)
			}
			if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassCanceled {
				t.Errorf("result is %+v", *o.Result)
			}
			second, _ := os.ReadFile(d.path(task.ID.Dir(), logFile+".1"))
			if got := logOf(t, d, task.ID) + string(second); strings.Count(got, "up\n") != 2 || strings.Count(got, "TERM\n") != 2 {
				t.Errorf("they wrote %q", got)
			}
		})
	}
}

func TestWhatSlurmWaitsForIsSaid(t *testing.T) {
	s := lab(t)
	for name, c := range map[string]struct {
		settings slurm.Settings
		nodes    int
		want     string
	}{
		"a partition that is down":   {slurm.Settings{Partition: "down"}, 1, "Slurm: (PartitionDown) partition down is down"},
		"more nodes than there are":  {slurm.Settings{Partition: "main"}, 9, "Slurm: (PartitionConfig) it asks for more than partition main has or allows"},
		"a time that is to come":     {slurm.Settings{Sbatch: []string{"--begin=now+2hours"}}, 1, "Slurm: (BeginTime) its begin time has not come; expected to begin at about "},
		"held by the one who set up": {slurm.Settings{Sbatch: []string{"--hold"}}, 1, "Slurm: (JobHeldUser) held by its user; scontrol release lets it go on"},
	} {
		t.Run(name, func(t *testing.T) {
			c.settings.ConfPath = s.ConfPath
			d := open(t, c.settings, t.TempDir())
			task := makeTask(t, "waits", "true", c.nodes)
			start(t, d, task)
			seen(t, d, task.ID, "its reason is "+c.want, func(o trainyard.Observation) bool {
				return o.State == trainyard.TaskStaging && strings.HasPrefix(o.Progress, c.want)
			})
			if err := d.Stop(t.Context(), task.ID, time.Hour); err != nil {
				t.Fatal(err)
			}
			if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != -1 || o.Result.Message != "stopped before Slurm began it" {
				t.Errorf("result is %+v", *o.Result)
			}
		})
	}
}

func TestWaitingForNodes(t *testing.T) {
	s := lab(t)
	s.Exclusive = true
	d := open(t, s, t.TempDir())
	full, next := makeTask(t, "full", "sleep 600", 4), makeTask(t, "next", "echo mine", 2)
	start(t, d, full)
	running(t, d, full.ID)
	start(t, d, next)
	seen(t, d, next.ID, "it waits for nodes", func(o trainyard.Observation) bool {
		return o.State == trainyard.TaskStaging && strings.HasPrefix(o.Progress, "Slurm: (Resources) waiting for 2 nodes of partition main to become free")
	})
	if err := d.Remove(t.Context(), full.ID); err != nil {
		t.Fatal(err)
	}
	if o := ended(t, d, next.ID); o.Result.Class != trainyard.ClassOK || logOf(t, d, next.ID) != "mine\n" {
		t.Errorf("result is %+v", *o.Result)
	}
}

// jobOf is the number of a task's job.
func jobOf(d *Driver, id trainyard.TaskID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tasks[id.Dir()].job
}

func TestCanceledInSlurm(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	waits, runs, deaf := makeTask(t, "waits", "true", 9), makeTask(t, "runs", "sleep 600", 1), makeTask(t, "deaf", "trap '' TERM; sleep 600; sleep 600", 1)
	for _, task := range []trainyard.Task{waits, runs, deaf} {
		start(t, d, task)
	}
	running(t, d, runs.ID)
	running(t, d, deaf.ID)
	for _, task := range []trainyard.Task{waits, runs, deaf} {
		job := jobOf(d, task.ID)
		command(t, s, "scancel", job)
		o := ended(t, d, task.ID)
		if o.Result.Class != trainyard.ClassCanceled || o.Result.Message != "job "+job+" was canceled in Slurm (scancel)" {
			t.Errorf("%s: result is %+v", task.JobName, *o.Result)
		}
	}
}

func TestPreemptedIsALostNode(t *testing.T) {
	s := lab(t)
	low, high := s, s
	low.Partition, low.Exclusive, high.Exclusive = "low", true, true
	d, e := open(t, low, t.TempDir()), open(t, high, t.TempDir())
	cheap, dear := makeTask(t, "cheap", "sleep 600", 4), makeTask(t, "dear", "true", 4)
	start(t, d, cheap)
	running(t, d, cheap.ID)
	start(t, e, dear)
	o := ended(t, d, cheap.ID)
	if o.Result.Class != trainyard.ClassPreempted || o.Result.ExitCode != -1 || !strings.Contains(o.Result.Message, "preempted") {
		t.Errorf("result is %+v", *o.Result)
	}
	if o := ended(t, e, dear.ID); o.Result.Class != trainyard.ClassOK {
		t.Errorf("what took its nodes: %+v", *o.Result)
	}
}

// An administrator has Slurm put a job back in its queue. What ran of it is over, whether it heeds SIGTERM or not; another attempt may begin, and the job that
// waits is not to run beside it.
func TestPutBackInTheQueueIsPreempted(t *testing.T) {
	s := lab(t)
	for _, way := range []string{byCommands, byREST} {
		for name, program := range map[string]string{"heeds": "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", "deaf": "trap '' TERM; echo up; while :; do sleep 0.05; done"} {
			t.Run(way+" "+name, func(t *testing.T) {
				by := labBy(t, way)
				by.Folder = t.TempDir()
				d := open(t, by, t.TempDir())
				task := makeTask(t, "requeued", program, 1)
				start(t, d, task)
				running(t, d, task.ID)
				until(t, time.Minute, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" }, func() string { return logOf(t, d, task.ID) })
				job := jobOf(d, task.ID)
				command(t, s, "scontrol", "update", "jobid="+job, "requeue=1")
				command(t, s, "scontrol", "requeue", job)
				o := ended(t, d, task.ID)
				if o.Result.Class != trainyard.ClassPreempted || o.Result.Message != "Slurm took job "+job+" off its nodes and put it back in its queue (requeue)" {
					t.Errorf("result is %+v", *o.Result)
				}
				state := ""
				until(t, time.Minute, "the job is out of the queue", func() bool {
					state = strings.TrimSpace(command(t, s, "squeue", "--noheader", "--states=all", "--format=%T", "--jobs="+job))
					return state == slurm.Cancelled
				}, func() string { return state })
			})
		}
	}
}

func TestSlurmsTimeLimit(t *testing.T) {
	t.Parallel()
	s := lab(t)
	s.TimeLimit = "1"
	d := open(t, s, t.TempDir())
	task := makeTask(t, "long", "sleep 600", 1)
	start(t, d, task)
	running(t, d, task.ID)
	late := time.After(2 * time.Minute) // Slurm looks every half minute
	for o := (trainyard.Observation{}); o.State != trainyard.TaskEnded; {
		select {
		case <-late:
			t.Fatal("Slurm does not end it")
		case <-time.After(time.Second):
		}
		if all, err := d.Observe(t.Context()); err == nil && len(all) == 1 {
			if o = all[0]; o.State == trainyard.TaskEnded && (o.Result.Class != trainyard.ClassTimeout || !strings.Contains(o.Result.Message, "time limit of ")) {
				t.Errorf("result is %+v", *o.Result)
			}
		}
	}
}

func TestMemoryOfAGang(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	task := makeTask(t, "hungry", `[ $RANK = 0 ] && sleep 600; head -c 400000000 /dev/zero | tail; exit ${PIPESTATUS[1]}`, 2)
	task.Resources.MemoryMB = 150
	start(t, d, task)
	o := ended(t, d, task.ID)
	if strings.Contains(strings.Join(o.Notes, "; "), "is not held") {
		return
	}
	if o.Result.Class != trainyard.ClassOutOfMemory || o.Result.LimitMB != 150 || o.Result.ExitCode != 137 {
		t.Errorf("result is %+v", *o.Result)
	}
}

func TestLinesAndSettingsReachSlurm(t *testing.T) {
	s := lab(t)
	s.Partition, s.Sbatch, s.Folder = "low", []string{"--nice=7", "--comment=from-a-test", "-d singleton"}, t.TempDir()
	d := open(t, s, t.TempDir())
	task := makeTask(t, "lines", `echo "$SECRET$TRAINYARD_TOKEN|$CUDA_VISIBLE_DEVICES|$SLURM_JOB_PARTITION"; tr '\0' ' ' < /proc/$PPID/cmdline`, 1)
	t.Setenv("SECRET", "of the agent")
	t.Setenv("TRAINYARD_TOKEN", "of the agent")
	task.Resources.GPUs, task.Timeout = 2, 10*time.Minute
	start(t, d, task)
	if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassOK {
		t.Fatalf("%+v", *o.Result)
	}
	got := logOf(t, d, task.ID)
	if !strings.HasPrefix(got, "|0,1|low\n") || !strings.Contains(got, s.Folder+"/trainyard-") {
		t.Errorf("it wrote %q", got)
	}
	if info, err := os.Stat(d.path(task.ID.Dir(), taskFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the task, which may hold tokens, is %v, %v", info, err)
	}
	show := command(t, s, "scontrol", "show", "job", "--oneliner", jobOf(d, task.ID))
	for _, want := range []string{" Nice=7 ", " Comment=from-a-test ", " Requeue=0 ", " TimeLimit=00:41:00 ", " TresPerNode=gres:gpu:2 ", " NumNodes=1 "} {
		if !strings.Contains(show, want) {
			t.Errorf("Slurm shows %s, which lacks %q", show, want)
		}
	}
}

func TestProbe(t *testing.T) {
	s := lab(t)
	s.Partition = "low"
	found, err := (&Config{Settings: s}).Probe(t.Context())
	if err != nil || len(found.Notes) != 1 || !strings.HasPrefix(found.Notes[0], "partition low has 4 nodes with ") || !strings.HasSuffix(found.Notes[0], " and 8 GPUs together") {
		t.Errorf("%+v, %v", found, err)
	}
}

// What sbatch says of options that are wrong is said before there is a job; a partition that is down or has no node to spare is none of that.
func TestProbeHasSlurmLookAtTheSettings(t *testing.T) {
	for _, way := range []string{byCommands, byLogin} {
		for name, c := range map[string]struct {
			settings string
			want     string
		}{
			"nothing":                  {`{}`, ""},
			"a line that is fine":      {`{"sbatch":["--nice=7"]}`, ""},
			"a partition that is down": {`{"partition":"down"}`, ""},
			"an option it has not":     {`{"sbatch":["--nope=1"]}`, "unrecognized option '--nope=1'"},
			"a node it has not":        {`{"sbatch":["--nodelist=nosuch"]}`, "Invalid node name specified"},
			"a feature it has not":     {`{"constraint":"nope"}`, "Invalid feature specification"},
			"a reservation it has not": {`{"reservation":"nope"}`, "Requested reservation is invalid"},
		} {
			t.Run(way+", "+name, func(t *testing.T) {
				s := labBy(t, way)
				if way == byLogin {
					s.Folder = t.TempDir()
				}
				if err := json.Unmarshal([]byte(c.settings), &s); err != nil {
					t.Fatal(err)
				}
				_, err := (&Config{Settings: s}).Probe(t.Context())
				if c.want == "" && err != nil {
					t.Errorf("refused: %v", err)
				}
				if c.want != "" && (trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		}
	}
}

func TestProbePassesPartitionsWithoutRoom(t *testing.T) {
	s := lab(t)
	list, err := s.Client("").Nodes(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	all := "nodename=" + strings.Join(names, ",")
	command(t, s, "scontrol", "update", all, "state=drain", "reason=test")
	defer command(t, s, "scontrol", "update", all, "state=resume")
	if _, err := (&Config{Settings: s}).Probe(t.Context()); err != nil {
		t.Errorf("all nodes drained: %v", err)
	}
	command(t, s, "scontrol", "update", "partitionname=low", "state=drain")
	defer command(t, s, "scontrol", "update", "partitionname=low", "state=up")
	s.Partition = "low"
	if _, err := (&Config{Settings: s}).Probe(t.Context()); err != nil {
		t.Errorf("the partition drained: %v", err)
	}
}

func TestWhatSlurmRefusesIsAnError(t *testing.T) {
	s := lab(t)
	s.Partition = "no-such"
	d := open(t, s, t.TempDir())
	task := makeTask(t, "refused", "true", 1)
	err := d.Start(t.Context(), task)
	if err == nil || !strings.Contains(err.Error(), "invalid partition specified: no-such") || strings.Contains(err.Error(), string(task.ID)) {
		t.Errorf("start: %v", err)
	}
	if class := trainyard.ClassOf(err); class != trainyard.ClassUser {
		t.Errorf("its class is %q, and the same would be tried again", class)
	}
	if all, err := d.Observe(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("it is listed: %+v, %v", all, err)
	}
	if _, err := d.Capacity(t.Context()); !trainyard.IsNotFound(err) {
		t.Errorf("capacity: %v", err)
	}
}

func TestProgramThatNodesDoNotSee(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	d.program = "/no/such/program"
	task := makeTask(t, "blind", "true", 1)
	start(t, d, task)
	o := ended(t, d, task.ID)
	if o.Result.Class != trainyard.ClassStart || !strings.Contains(o.Result.Message, "/no/such/program") || !strings.Contains(o.Result.Message, "setting folder") {
		t.Errorf("result is %+v", *o.Result)
	}
}
