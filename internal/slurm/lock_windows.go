package slurm

import (
	"context"
	"os"
	"time"

	"github.com/trainyard/trainyard"
)

// Lock says that there is no Slurm here.
func Lock(_ context.Context, dir string, _ time.Duration) (*os.File, error) {
	return nil, trainyard.Invalid("%s cannot be used: Slurm's commands do not run on Windows; attach Slurm on one of its login nodes", dir)
}
