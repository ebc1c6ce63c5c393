//go:build unix

package slurm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestSettingsThatAreFine(t *testing.T) {
	s := Settings{Partition: "gpu,gpu-long", Account: "lab_1", QOS: "high", Constraint: "a100&[rack1|rack2]", Reservation: "maint.2", TimeLimit: "2-12:00:00",
		Sbatch:   []string{"--mail-type=FAIL", "--nice=100", "-d singleton", "--gpus-per-node=a100:2", "--wait-all-nodes=1", "--begin=now+1hour", "--ntasks-per-core=1", "-L matlab"},
		Commands: "/opt/slurm/22.05/bin", ConfPath: "/etc/slurm/slurm.conf", Folder: "/shared/train-yard", Exclusive: true}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	want := "--partition=gpu,gpu-long --account=lab_1 --qos=high --constraint=a100&[rack1|rack2] --reservation=maint.2 --time=2-12:00:00 --exclusive"
	if got := strings.Join(s.Args(), " "); got != want {
		t.Errorf("arguments are %s, want %s", got, want)
	}
	if err := (&Settings{}).Validate(); err != nil {
		t.Errorf("nothing set: %v", err)
	}
}

func TestSettingsThatCouldBeMoreThanAValue(t *testing.T) {
	hostile := []string{"a b", "a;reboot", "$(reboot)", "`reboot`", "a\nreboot", "a\r", "a\x00b", "--wrap=reboot", "-p", "a'b", `a"b`, `a\b`, "a>b", "a<b", "a#b", "a!b", "~root", "a{b,c}", "é",
		strings.Repeat("x", 2000)}
	fields := map[string]func(s *Settings, v string){
		"partition":   func(s *Settings, v string) { s.Partition = v },
		"account":     func(s *Settings, v string) { s.Account = v },
		"qos":         func(s *Settings, v string) { s.QOS = v },
		"constraint":  func(s *Settings, v string) { s.Constraint = v },
		"reservation": func(s *Settings, v string) { s.Reservation = v },
		"timeLimit":   func(s *Settings, v string) { s.TimeLimit = v },
		"commands":    func(s *Settings, v string) { s.Commands = v },
		"confPath":    func(s *Settings, v string) { s.ConfPath = v },
		"folder":      func(s *Settings, v string) { s.Folder = v },
	}
	for name, set := range fields {
		for _, v := range append(hostile, "a&&b\n") {
			var s Settings
			set(&s, v)
			if err := s.Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.HasPrefix(err.Error(), name) {
				t.Errorf("%s %q: %v", name, v, err)
			}
		}
	}
	for _, line := range append(hostile[:len(hostile):len(hostile)], "", "reboot", "--nice=1 --wrap=reboot", "--nice=1;reboot", "--array=1-9", "--arr=1-9", "-a1-9", "-a 1-9", "--wrap=true",
		"--output=/etc/passwd", "-o /etc/passwd", "--requeue", "--requ", "--export=ALL", "--uid=0", "--job-name=x", "-Jx", "--nodes=7", "-N7", "--clusters=other", "-Mother",
		"--chdir=/", "-D/", "--wait", "--NODES=7", "--test-only", "--", "-", "---nice") {
		s := Settings{Sbatch: []string{line}}
		if line == "-p" { // a partition's option without one: Slurm says so
			continue
		}
		if err := s.Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("line %q: %v", line, err)
		}
	}
}

func TestHeadOfAScript(t *testing.T) {
	s := Settings{Sbatch: []string{"--nice=1"}, Commands: "/opt/slurm/bin"}
	if got, want := s.Head(), "#!/bin/bash\n#SBATCH --nice=1\nPATH='/opt/slurm/bin':$PATH\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, dir := range []string{"relative", "/a b", "/a%j", "/a'b", "/a\nb", ""} {
		if CheckFolder(dir) == nil {
			t.Errorf("folder %q is taken", dir)
		}
	}
}

func TestQuoteIsOneWord(t *testing.T) {
	for _, word := range []string{"", "a b", "it's", "$HOME `id` \"x\" \\", "a\nb"} {
		out, err := exec.Command("sh", "-c", "printf %s "+Quote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q comes out as %q (%v)", word, out, err)
		}
	}
}

func TestQueue(t *testing.T) {
	jobs, err := parseQueue("7|RUNNING|main|2|n[0-1]|1:00:00|1795243978|1795247578|None|gang.1.0@ab\n" +
		"8|PENDING|main|1||UNLIMITED|N/A|N/A|Nodes required for job are DOWN, DRAINED|a|b\n" +
		"9_[1-3]|PENDING|main|1||UNLIMITED|N/A|N/A|Resources|array\n" +
		"10|OUT_OF_MEMORY|main|1|n3|UNLIMITED|1795243978|1795243990|OutOfMemory|x\nsecond line of a name\n")
	if err != nil || len(jobs) != 3 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	if j := jobs[0]; j.ID != "7" || j.Nodes != 2 || j.NodeList != "n[0-1]" || j.Name != "gang.1.0@ab" || j.Start.Unix() != 1795243978 || !j.End.IsZero() || j.Ended() {
		t.Errorf("%+v", j)
	}
	if j := jobs[1]; j.Name != "a|b" || !j.Start.IsZero() || !strings.Contains(j.Why(), "reserved for jobs of a higher priority") {
		t.Errorf("%+v says %s", j, j.Why())
	}
	if j := jobs[2]; !j.Ended() || j.End.Unix() != 1795243990 {
		t.Errorf("%+v", j)
	}
	if _, err := parseQueue("x|RUNNING|something|else\n"); err == nil {
		t.Error("what is no job is taken for one")
	}
}

func TestWhy(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, j := range map[string]Job{
		"Slurm: (Resources) waiting for 2 nodes of partition gpu to become free": {Reason: "Resources", Nodes: 2, Partition: "gpu"},
		"Slurm: (Priority) jobs with a higher priority wait for a node of partition gpu before it; expected to begin at about 2030-01-02 03:04 UTC": {
			Reason: "Priority", Nodes: 1, Partition: "gpu", Start: start, State: Pending},
		"Slurm: (ReqNodeNotAvail, UnavailableNodes:n[1-3]) nodes that it needs are down, drained or reserved": {Reason: "ReqNodeNotAvail, UnavailableNodes:n[1-3]"},
		"Slurm: (SomethingNew)": {Reason: "SomethingNew"},
		"Slurm: (AssocGrpGRES) its account uses all GPUs that it may": {Reason: "AssocGrpGRES"},
	} {
		if got := j.Why(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestShowAndAccounting(t *testing.T) {
	j := parseShow("JobId=4 JobName=a@b UserId=root(0) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=137:0 TimeLimit=00:41:00 " +
		"StartTime=1795243978 EndTime=1795243990 Partition=main NodeList=n0 NumNodes=1 Restarts=2 Comment=JobState=COMPLETED\n")
	if j.ID != "4" || j.Name != "a@b" || j.State != Failed || j.ExitCode != 137 || j.Signal != 0 || j.TimeLimit != "00:41:00" || j.NodeList != "n0" || j.End.Unix() != 1795243990 || j.Restarts != 2 {
		t.Errorf("%+v", j)
	}
	j, ok := parseAccount("4|a@b|CANCELLED by 0|0:15|1795243978|1795243990|main|n0\n")
	if !ok || j.State != Cancelled || j.By != "root" || j.Signal != 15 {
		t.Errorf("%+v", j)
	}
	if j, ok = parseAccount("4|a@b|CANCELLED by 4294967290|0:0|Unknown|Unknown|main|None assigned"); !ok || j.By != "4294967290" || !j.Start.IsZero() {
		t.Errorf("%+v", j)
	}
	if _, ok = parseAccount("sacct says hello"); ok {
		t.Error("what is no job is taken for one")
	}
}

func TestNodes(t *testing.T) {
	nodes := parseNodes("n0|64|262144|idle|gpu:a100:4(S:0-1),fpga:1\nn0|64|262144|idle|gpu:a100:4\nn1|32|1000+|down*|(null)\nn2|8|5|mixed|gpu:2,gpu:v100:1\n")
	want := []Node{{"n0", 64, 262144, 4, "idle"}, {"n1", 32, 1000, 0, "down*"}, {"n2", 8, 5, 3, "mixed"}}
	if len(nodes) != len(want) {
		t.Fatalf("%+v", nodes)
	}
	for i := range want {
		if nodes[i] != want[i] {
			t.Errorf("%+v, want %+v", nodes[i], want[i])
		}
	}
}

func TestWordsOfCommands(t *testing.T) {
	for errs, want := range map[string]struct {
		words string
		away  bool
	}{
		"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n": {"Unable to contact slurm controller (connect failure)", true},
		"slurm_load_jobs error: Socket timed out on send/recv operation\n":                                   {"slurm_load_jobs error: Socket timed out on send/recv operation", true},
		"sbatch: error: Memory specification can not be satisfied\nsbatch: error: Batch job submission failed: Requested node configuration is not available\n": {
			"Memory specification can not be satisfied; Requested node configuration is not available", false},
		"": {"", false},
	} {
		e := &Error{Command: "sbatch", Words: lastWords(errs), Err: errors.New("exit status 1")}
		if e.Words != want.words || Away(e) != want.away {
			t.Errorf("%q: %q, away %v", errs, e.Words, Away(e))
		}
	}
	if over(&Error{Words: "Kill job error on job id 9: Invalid job id specified"}) != nil || over(&Error{Words: "Access/permission denied"}) == nil {
		t.Error("what is over and what is not is mixed up")
	}
}

// What would be refused again is told from what may pass: no room, a node that is drained, a limit on jobs, a controller that is away.
func TestWhatIsWrongWithOptions(t *testing.T) {
	for words, want := range map[string]bool{
		"Invalid account or account/partition combination specified":       true,
		"Invalid qos specification":                                        true,
		"unrecognized option '--nope=1'":                                   true,
		"option '--no' is ambiguous; possibilities: '--nodefile' '--nope'": true,
		"option requires an argument -- 'p'":                               true,
		"User's group not permitted to use this partition":                 true,
		"Requested node configuration is not available":                    false,
		"Required partition not available (inactive or drain)":             false,
		"Job violates accounting/QOS policy (job submit limit, ...)":       false,
		"Invalid job credential":                                           false,
		"Invalid authentication credential":                                false,
		"project over budget":                                              false,
		"":                                                                 false,
	} {
		if got := Misfit(&Error{Command: "sbatch", Words: words, Err: errors.New("exit status 1")}); got != want {
			t.Errorf("%q: %v", words, got)
		}
	}
	if Misfit(nil) || Misfit(errors.New("invalid")) || Misfit(&Error{Words: "invalid", Err: errAway}) {
		t.Error("what sbatch did not say is taken for its word")
	}
}

// Without Slurm's commands everything says what to do about it.
func TestNoSlurmHere(t *testing.T) {
	c := (&Settings{Commands: "/no/such/folder"}).Client("")
	_, err := c.Queue(context.Background())
	if err == nil || Away(err) {
		t.Errorf("queue: %v", err)
	}
	t.Setenv("PATH", "/no/such/folder")
	if _, err = (&Settings{}).Client("").Nodes(context.Background(), ""); err == nil || !strings.Contains(err.Error(), "setting commands") {
		t.Errorf("nodes: %v", err)
	}
}

// A stand-in sbatch shows what is handed to it. Arguments win over the lines of a script, which hold what users add.
func TestWhatIsHandedToSbatch(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte("#!/bin/sh\n{ printf '%s\\n' \"$@\"; cat; env | sort; } >"+dir+"/got; echo '12;cluster'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SBATCH_PARTITION", "evil")
	t.Setenv("SECRET", "x")
	s := Settings{Commands: dir, ConfPath: "/etc/s.conf", Partition: "gpu"}
	id, err := s.Client("").Submit(context.Background(), Batch{Script: "#!/bin/true\n", Name: "n", Dir: "/d", Output: "/d/out", Nodes: 2, CPUs: 3, MemoryMB: 100, GPUs: 1, Time: 61 * time.Second, Args: s.Args()})
	if err != nil || id != "12" {
		t.Fatalf("%q, %v", id, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "got"))
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	want := "--parsable\n--export=ALL\n--no-requeue\n--open-mode=append\n--input=/dev/null\n--chdir=/d\n--output=/d/out\n--error=/d/out\n--job-name=n\n--nodes=2\n" +
		"--ntasks=2\n--ntasks-per-node=1\n--cpus-per-task=3\n--mem=100M\n--gres=gpu:1\n--time=2\n--partition=gpu\n#!/bin/true\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("sbatch got\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(got, "SECRET") || strings.Contains(got, "evil") || !strings.Contains(got, "SLURM_CONF=/etc/s.conf") {
		t.Errorf("the environment of jobs is\n%s", got)
	}
}

func TestTheNumberOfAJobIsFoundInWhatASitePrints(t *testing.T) {
	for out, want := range map[string]string{
		"12\n": "12", "12": "12", "12;cluster\n": "12", "": "", "\n": "", "sbatch: what?\n": "", "12a\n": "", ";cluster\n": "",
		"Welcome to the cluster\n* quota: 80 %\n\n12;cluster\n": "12", "12\nthanks\n": "12", "You have\n1000\nhours left\n12\n": "12",
		"Submitted batch job 12\n": "12", "-> queue gpu: OK\nSubmitted batch job 12 on cluster c\n": "12", "Submitted batch job\n": "", "Submitted batch job x\n": "",
	} {
		if got := jobNumber(out); got != want {
			t.Errorf("of %q the number is %q", out, got)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	first, err := Identity(dir)
	again, err2 := Identity(dir)
	other, _ := Identity(t.TempDir())
	if err != nil || err2 != nil || first != again || first == other || len(first) != 12 {
		t.Errorf("identities %q, %q, %q: %v, %v", first, again, other, err, err2)
	}
	lock, err := Lock(context.Background(), dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(context.Background(), dir, 0); !trainyard.IsConflict(err) {
		t.Errorf("a second lock: %v", err)
	}
	cmd := exec.Command("sleep", "1000") // a submission that outlives us
	cmd.ExtraFiles = []*os.File{lock}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	if _, err := Lock(context.Background(), dir, 0); !trainyard.IsConflict(err) {
		t.Errorf("a lock while a child holds it: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	lock, err = Lock(context.Background(), dir, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()

	from, to := filepath.Join(dir, "program"), t.TempDir()
	if err := os.WriteFile(from, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, err := Share(disk{}, from, to, 0o700)
	b, err2 := Share(disk{}, from, to, 0o700)
	if err != nil || err2 != nil || a != b {
		t.Errorf("%q, %v; %q, %v", a, err, b, err2)
	}
	if data, err := os.ReadFile(a); err != nil || string(data) != "one" {
		t.Errorf("%q, %v", data, err)
	}
}
