// Command least is the least that a program for tasks can be: it runs a command with bash, behind the shell that keeps its exit code, and
// leaves a file when that has ended well. Slurm by itself is measured with it in its jobs, to tell what any such program adds.
package main

import (
	"fmt"
	"os"
	"os/exec"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: least COMMAND FILE")
		os.Exit(2)
	}
	err := exec.Command("/bin/sh", "-c", `"$@"; exit $?`, "sh", "bash", "-c", os.Args[1]).Run()
	if err == nil {
		err = os.WriteFile(os.Args[2], nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "least:", err)
		os.Exit(1)
	}
}
