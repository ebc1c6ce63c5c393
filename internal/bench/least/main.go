// Command least does about the least that a program for tasks can do: it runs a command with bash, behind the shell that keeps its exit code, and
// leaves a file when that has ended well. Slurm by itself is measured with it in its jobs, to tell what any such program adds; and Trainyard with
// it in the place of its own, to tell what its server adds.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

const usage = "usage: least COMMAND FILE\n       least task --file TASK --result FILE [--hide PATH]..."

func main() {
	runtime.GOMAXPROCS(1) // as Trainyard's program does, until it has files to bring or to store
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "least:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2:
		if err := shells(args[0]); err != nil {
			return err
		}
		return os.WriteFile(args[1], nil, 0o600)
	case len(args) >= 5 && args[0] == "task" && args[1] == "--file" && args[3] == "--result" && onlyHides(args[5:]):
		return task(args[2], args[4])
	}
	return fmt.Errorf("cannot be started so\n%s", usage)
}

// task runs what a file of Trainyard's asks for, and leaves word of its end where Trainyard's own program does, of one that went well. Of another it
// leaves none.
func task(file, result string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var t struct{ Command string }
	if err := json.Unmarshal(data, &t); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	started := time.Now()
	if err := shells(t.Command); err != nil {
		return err
	}
	end := fmt.Appendf(nil, `{"result":{"class":"OK","exitCode":0},"started":%q,"ended":%q}`, started.Format(time.RFC3339Nano), time.Now().Format(time.RFC3339Nano))
	return os.WriteFile(result, end, 0o600)
}

// onlyHides says whether flags name paths to keep from the command, and nothing else. An empty program keeps nothing from it.
func onlyHides(flags []string) bool {
	for i, word := range flags {
		if i%2 == 0 && word != "--hide" {
			return false
		}
	}
	return len(flags)%2 == 0
}

func shells(command string) error {
	return exec.Command("/bin/sh", "-c", `"$@"; exit $?`, "sh", "bash", "-c", command).Run()
}
