package gateway

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	reportEvery = time.Second
	leastPause  = 100 * time.Millisecond
	mostPause   = 5 * time.Second
)

// Run fetches routes and sends reports until ctx is done. While the server is away the last routes stay in force. It returns ctx's error.
func (g *Gateway) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { g.follow(ctx) })
	wg.Go(func() { g.tell(ctx) })
	wg.Wait()
	return ctx.Err()
}

// follow keeps the routes up to date. The first question, and the first after a failure, asks for all there is: a server that was
// restarted may count anew.
func (g *Gateway) follow(ctx context.Context) {
	failures, after := 0, int64(0)
	for ctx.Err() == nil {
		routes, err := g.config.Source.Routes(ctx, after)
		if err != nil {
			failures++
			if failures == 1 && ctx.Err() == nil {
				g.log.Warn("the server does not answer; the last routes stay in force", "error", err)
			}
			after = 0
			pause(ctx, failures)
			continue
		}
		if failures > 0 {
			g.log.Info("the server answers again")
		}
		failures = 0
		if routes.Rev != after {
			g.take(routes)
		}
		after = routes.Rev
	}
}

func (g *Gateway) take(routes trainyard.Routes) {
	g.apply(routes)
	g.rev.Store(routes.Rev)
	g.reportNow() // who drains a replica waits to hear that nobody sends there any more
	if err := g.remember(routes); err != nil {
		g.log.Warn("the routes could not be kept in a file; a restart needs the server", "error", err)
	}
}

// pause waits longer with every failure in a row, or until ctx is done.
func pause(ctx context.Context, failures int) {
	d := min(leastPause<<min(failures-1, 10), mostPause)
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d/2)):
	}
}

func (g *Gateway) reportNow() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// tell reports every second, and at once when a request begins to be held or new routes are in force.
func (g *Gateway) tell(ctx context.Context) {
	every := time.NewTicker(reportEvery)
	defer every.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-g.kick:
		}
		if err := g.config.Source.Report(ctx, g.report()); err != nil {
			failures++
			if failures == 1 && ctx.Err() == nil {
				g.log.Warn("a report did not reach the server", "error", err)
			}
			pause(ctx, failures)
			continue
		}
		failures = 0
	}
}

// report has a row for each deployment that had requests since the last one, and one more when it fell silent.
func (g *Gateway) report() trainyard.GatewayReport {
	r := trainyard.GatewayReport{Gateway: g.config.Name, Rev: g.rev.Load()}
	now := g.now()
	for _, d := range g.deployments() {
		if count, stats, ok := d.report(now); ok {
			r.Deployments = append(r.Deployments, count)
			r.Stats = append(r.Stats, stats)
		}
	}
	return r
}
