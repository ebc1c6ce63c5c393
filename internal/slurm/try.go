package slurm

import (
	"context"
	"errors"
	"strings"

	"github.com/trainyard/trainyard"
)

// Try asks Slurm whether a job with settings s could be submitted, without submitting one: sbatch --test-only. It says what is wrong with the
// settings, in Slurm's words and with CodeInvalid, and nothing else: that there is no room now, that a partition or nodes are down, that no job
// could ever be as large, is no fault of theirs. slurmrestd has no such question, and everything passes there.
func (c *Client) Try(ctx context.Context, s *Settings) error {
	by, ok := c.door.(*commands)
	if !ok {
		return nil
	}
	args := append([]string{"--test-only", "--input=/dev/null", "--output=/dev/null", "--error=/dev/null"}, s.Args()...)
	_, err := by.start(ctx, command{name: "sbatch", args: args, input: s.Head() + "exit 0\n"})
	switch {
	case err == nil || !Away(err) && !Misfit(err):
		return nil
	case Away(err):
		return err
	}
	return trainyard.Invalid("Slurm does not take jobs with these settings: %v", err)
}

// misfits are words of sbatch for options that are wrong today and tomorrow. From slurm_errno.c, and from the reading of options in slurm_opt.c
// and getopt. "Requested node configuration is not available" is none of them: sbatch --test-only says so of nodes that are drained, too.
var misfits = []string{"invalid", "unrecognized option", "unknown option", "is ambiguous", "requires an argument", "doesn't allow an argument", "not permitted to use",
	"bad value", "unable to parse"}

// fits are words of sbatch that have one of misfits in them, and another meaning.
var fits = []string{"invalid job id", "invalid job credential", "invalid authentication credential", "invalid entry for --cluster", "protocol version"}

// Misfit says whether err means that Slurm refused a job for its options, such that it would refuse the same again.
func Misfit(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || Away(err) {
		return false
	}
	words := strings.ToLower(e.Words)
	within := func(list []string) bool {
		for _, w := range list {
			if strings.Contains(words, w) {
				return true
			}
		}
		return false
	}
	return within(misfits) && !within(fits)
}
