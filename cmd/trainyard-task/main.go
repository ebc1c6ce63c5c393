// Command trainyard-task is what Trainyard has engines start in the place of "trainyard task": the same, and what asks
// for the task first where the engine does not tell it, and nothing else, so that it starts fast and is soon sent. It is no program for people,
// and is packed into the one that is: see internal/taskrun/slim.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/taskrun"
)

func main() {
	flags := flag.NewFlagSet("trainyard-task task", flag.ExitOnError)
	var f taskrun.Options
	f.Flags(flags)
	switch {
	case len(os.Args) > 1 && os.Args[1] == "ask":
		err := agentlink.Ask(context.Background(), os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
		}
		os.Exit(agentlink.AskStatus(err))
	case len(os.Args) < 2 || os.Args[1] != "task":
		fmt.Fprintln(os.Stderr, "Error: this program knows only \"task\" and \"ask\", which engines start; people use trainyard")
		os.Exit(2)
	}
	_ = flags.Parse(os.Args[2:]) // or it has left
	if f.File == "" || flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "Error: task wants --file FILE, and nothing but flags")
		os.Exit(2)
	}
	status, err := f.Run(context.Background(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
	}
	os.Exit(status)
}
