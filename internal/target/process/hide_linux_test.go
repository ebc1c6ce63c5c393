package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// bothWays runs a test with mounts and with Landlock alone, on a folder of secrets beside other folders. held is false where this
// computer cannot hide, and has said so.
func bothWays(t *testing.T, test func(t *testing.T, d *Driver, dir string, held bool)) {
	t.Helper()
	for name, mounts := range map[string]bool{"by mounts": true, "by Landlock alone": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"server/secret/token", "server/secret/deep/db", "server/open/data", "server/file"} {
				err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), []byte("content of "+name+"\n"), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			d := open(t, &Config{}, filepath.Join(dir, "driver"), trainyard.Resources{})
			d.host.fence.mounts = d.host.fence.mayMount() && mounts
			held := d.host.fence.missing() == ""
			noted := slices.ContainsFunc(d.Notes(), func(n string) bool { return strings.Contains(n, "not hidden") })
			if held == noted {
				t.Errorf("notes are %q, and hiding is %t", d.Notes(), held)
			}
			test(t, d, dir, held)
		})
	}
}

// hidden runs a command that must not reach the secret folder.
func hidden(t *testing.T, d *Driver, dir, name, command string) (string, int) {
	t.Helper()
	task := job(t, name, command)
	task.Run.Env = map[string]string{"SERVER": filepath.Join(dir, "server"), "AGENT": fmt.Sprint(os.Getpid())}
	task.Run.Hide = []string{filepath.Join(dir, "server/secret")}
	o, log := run(t, d, task)
	return log, o.Result.ExitCode
}

func TestHiddenPathsAreOutOfReach(t *testing.T) { bothWays(t, hiddenPathsAreOutOfReach) }

func hiddenPathsAreOutOfReach(t *testing.T, d *Driver, dir string, held bool) {
	if !held {
		return
	}
	if d.host.fence.abi >= signalABI {
		if log, code := hidden(t, d, dir, "signal", `sleep 9 & kill -9 $! && ! kill -0 $AGENT`); code != 0 {
			t.Errorf("a task may signal the agent, or not its own: exit code %d, wrote %q", code, log)
		}
	}
	for i, command := range []string{
		`cat "$SERVER/secret/token"`,
		`cat "$SERVER/secret/deep/db"`,
		`cat "$SERVER/open/../secret/token"`,
		`ln -s "$SERVER/secret/token" link && cat link`,
		`cat "/proc/$AGENT/root$SERVER/secret/token"`,
		`umount "$SERVER/secret" && cat "$SERVER/secret/token"`,
		`unshare -m umount "$SERVER/secret" && cat "$SERVER/secret/token"`,
		`nsenter -t $AGENT -m cat "$SERVER/secret/token"`,
		`cat "/proc/$AGENT/cwd/../../../../../../../../$SERVER/secret/token"`,
		`echo x > "$SERVER/secret/token"`,
		`echo x > "$SERVER/secret/new"`,
		`mkdir "$SERVER/secret/new"`,
		`rm "$SERVER/secret/token"`,
		`mv "$SERVER/secret" "$SERVER/moved"`,
		`mv "$SERVER/secret/token" .`,
		`ln "$SERVER/secret/token" hard && cat hard`,
		`python3 -c 'import os; os.truncate(os.environ["SERVER"] + "/secret/token", 0)'`,
		`bash -c 'setsid cat "$SERVER/secret/token"'`,
		`mount --bind "$SERVER/secret" . && cat token`,
	} {
		if secret := filepath.Join(dir, "server/secret"); strings.Contains(command, "truncate") && !d.host.fence.covers([]string{secret}) && d.host.fence.abi < truncateABI {
			if said := d.host.fence.price([]string{secret}); !strings.Contains(said, "can empty them") {
				t.Errorf("a task can truncate, and that is not said in %q", said)
			}
			continue
		}
		log, code := hidden(t, d, dir, fmt.Sprint("reach", i), command)
		if code == 0 || strings.Contains(log, "content of") {
			t.Errorf("%s: exit code %d, wrote %q", command, code, log)
		}
	}
	for _, name := range []string{"server/secret/token", "server/secret/deep/db"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "content of "+name+"\n" {
			t.Errorf("%s holds %q afterwards (%v)", name, data, err)
		}
	}
}

func TestNothingElseChangesForATaskWithHiddenPaths(t *testing.T) {
	bothWays(t, nothingElseChangesForATaskWithHiddenPaths)
}

func nothingElseChangesForATaskWithHiddenPaths(t *testing.T, d *Driver, dir string, held bool) {
	for i, command := range []string{
		`test "$(cat "$SERVER/open/data" "$SERVER/file")" = "content of server/open/data
content of server/file"`,
		`echo x > new && mkdir -p a/b && mv new a/b && rm -r a`,
		`echo x > "$TMPDIR/t" && mv "$TMPDIR/t" . && cp t "$SERVER/open/" && mv t "$SERVER/open/u"`,
		`f=$(mktemp -p /var/tmp) && echo x > $f && rm $f`,
		`test -n "$(ls /)" && test -n "$(ls "$SERVER")"`,
		`echo x > /dev/null && test -r /proc/self/status && head -c 1 /dev/urandom | wc -c && echo x > /dev/stdout`,
		`python3 -c 'import os, socket, subprocess, multiprocessing, tempfile
with tempfile.TemporaryDirectory() as d: open(d + "/x", "w").write("x")
s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname())
multiprocessing.Lock(); multiprocessing.Pool(2).map(len, ["a", "b"])
print(subprocess.check_output(["sh", "-c", "echo ok"]))'`,
	} {
		if log, code := hidden(t, d, dir, fmt.Sprint("same", i), command); code != 0 {
			t.Errorf("%s: exit code %d, wrote %q", command, code, log)
		}
	}
}

func TestNewFilesBesideAHiddenPathWorkOrAreNamed(t *testing.T) { bothWays(t, newFilesBeside) }

func newFilesBeside(t *testing.T, d *Driver, dir string, held bool) {
	task := job(t, "beside", `echo x > "$SERVER/new" && mkdir "$SERVER/dir" && echo x > "$SERVER/dir/new" && rm -r "$SERVER/dir" &&
		f=$(mktemp -p /tmp) && rm $f`)
	task.Run.Env = map[string]string{"SERVER": filepath.Join(dir, "server")}
	task.Run.Hide = []string{filepath.Join(dir, "server/secret")}
	o, log := run(t, d, task)
	works, named := o.Result.ExitCode == 0, strings.Contains(strings.Join(o.Notes, "; "), filepath.Join(dir, "server")+",")
	if works == named || works != (d.host.fence.mounts || !held) {
		t.Errorf("exit code %d, wrote %q; the notes are %q", o.Result.ExitCode, log, o.Notes)
	}
}

func TestOwnFolderIsReachableBelowAHiddenOne(t *testing.T) {
	bothWays(t, ownFolderIsReachableBelowAHiddenOne)
}

func ownFolderIsReachableBelowAHiddenOne(t *testing.T, d *Driver, dir string, held bool) {
	own, other := filepath.Join(dir, "server/tasks/own"), filepath.Join(dir, "server/tasks/other")
	for _, path := range []string{own, other} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "file"), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	task := job(t, "own", `cat file && echo x > new && cat "$TMPDIR/../log" >/dev/null &&
		! cat ../other/file && ! cat ../../file && ! cat "$TMPDIR/../../lock"`)
	task.Run.Dir = own
	task.Run.Hide = []string{filepath.Join(dir, "server"), filepath.Join(dir, "server/secret"), filepath.Join(dir, "driver")}
	o, log := run(t, d, task)
	refused := strings.Count(log, "Permission denied") + strings.Count(log, "No such file")
	if held && (o.Result.ExitCode != 0 || refused != 3 || !strings.HasPrefix(log, "content")) {
		t.Errorf("exit code %d, wrote %q", o.Result.ExitCode, log)
	}
}

func TestWhatIsMadeLaterIsReachedByLaterTasks(t *testing.T) {
	bothWays(t, whatIsMadeLaterIsReachedByLaterTasks)
}

func whatIsMadeLaterIsReachedByLaterTasks(t *testing.T, d *Driver, dir string, held bool) {
	if log, code := hidden(t, d, dir, "before", `! test -e "$SERVER/later/file"`); code != 0 {
		t.Fatal(log)
	}
	later := filepath.Join(dir, "server/later")
	if err := os.Mkdir(later, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(later, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if log, code := hidden(t, d, dir, "after", `cat "$SERVER/later/file"`); code != 0 {
		t.Errorf("a task cannot read what was made before it began: %s", log)
	}
}

func TestHidingIsForTheTaskAlone(t *testing.T) { bothWays(t, hidingIsForTheTaskAlone) }

func hidingIsForTheTaskAlone(t *testing.T, d *Driver, dir string, held bool) {
	for i := range 20 {
		hidden(t, d, dir, fmt.Sprint("alone", i), "true")
		if _, err := os.ReadFile(filepath.Join(dir, "server/secret/token")); err != nil {
			t.Fatalf("the agent cannot read its own file: %v", err)
		}
		task := job(t, fmt.Sprint("free", i), `cat "$SERVER/secret/token"`)
		task.Run.Env = map[string]string{"SERVER": filepath.Join(dir, "server")}
		if o, log := run(t, d, task); o.Result.ExitCode != 0 {
			t.Fatalf("a task that nothing was hidden from cannot read: %s", log)
		}
	}
}

func TestPathsThatAreNotThereYetStayOutOfReach(t *testing.T) {
	bothWays(t, pathsThatAreNotThereYetStayOutOfReach)
}

func pathsThatAreNotThereYetStayOutOfReach(t *testing.T, d *Driver, dir string, held bool) {
	task := job(t, "not-yet", `until test -e "$SERVER/soon/deep"; do sleep 0.01; done; cat "$SERVER/soon/deep/token"`)
	task.Run.Env = map[string]string{"SERVER": filepath.Join(dir, "server")}
	task.Run.Hide = []string{filepath.Join(dir, "server/soon/deep")}
	start(t, d, task)
	if err := os.MkdirAll(filepath.Join(dir, "server/soon/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server/soon/deep/token"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if o := waitEnded(t, d, task.ID); held && o.Result.ExitCode == 0 {
		t.Error("the task could read what was hidden before it existed")
	}
}
