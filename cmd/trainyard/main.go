// Command trainyard is the whole of Trainyard in one binary: the server, the node agent, and the command line, whose verbs and flags are
// those of "az ml". Here things are wired and shown to people; what they do is decided elsewhere.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program whatever it does
	code := run(ctx, newConsole(os.Stdin, os.Stdout, os.Stderr), os.Args[1:])
	stop()
	os.Exit(code)
}
