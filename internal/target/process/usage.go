package process

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var _ target.Meter = (*Driver)(nil)

// Usage adds up what the task's processes use. Memory that several of them share is counted once, as far as can be told.
func (d *Driver) Usage(ctx context.Context, id trainyard.TaskID) (target.Usage, error) {
	d.mu.Lock()
	t := d.tasks[id.Dir()]
	var p *process
	if t != nil && t.began && t.end == nil {
		p = t.proc
	}
	d.mu.Unlock()
	if p == nil {
		return target.Usage{}, trainyard.NotFound("task %q does not run here", id)
	}
	u, err := p.measure()
	if err != nil {
		return target.Usage{}, err
	}
	if d.gpus.Count(ctx) > 0 {
		u.GPU = d.load.percent(ctx)
	}
	return u, nil
}

// gpuLoad is how busy this computer's GPUs are, asked for at most every gpuAgain.
type gpuLoad struct {
	mu   sync.Mutex
	at   time.Time
	last float64
}

const (
	gpuAgain    = 2 * time.Second
	gpuPatience = 2 * time.Second // for a GPU driver to say it
)

func (g *gpuLoad) percent(ctx context.Context) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < gpuAgain {
		return g.last
	}
	ctx, cancel := context.WithTimeout(ctx, gpuPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
	cmd.WaitDelay = 100 * time.Millisecond
	if out, err := cmd.Output(); err == nil {
		g.last = meanPercent(out)
	}
	g.at = time.Now()
	return g.last
}

// meanPercent is the mean of the numbers in out, one a line. A GPU that does not tell says "[N/A]".
func meanPercent(out []byte) float64 {
	sum, n := 0.0, 0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if v, err := strconv.ParseFloat(strings.TrimSpace(s.Text()), 64); err == nil {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(max(n, 1))
}
