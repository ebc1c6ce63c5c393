package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
	"github.com/trainyard/trainyard/internal/rightsize"
	"github.com/trainyard/trainyard/internal/spec"
)

// profiler measures one model. All that it makes is below one endpoint of its own.
type profiler struct {
	app         *app
	c           *client.Client
	dep         *spec.OnlineDeployment
	body        []byte
	contentType string
	sizes       []rightsize.Size // that may be used
	named       bool             // by the user
	machine     rightsize.Machine
	gpus        int
	each        time.Duration // length of one load
	most        int           // requests at once
	verify      bool
	plot        string

	endpoint   string
	uri        string
	key        string
	deployment string // that is asked now
	rep        profileReport
}

// How a profile waits.
const (
	cleanWithin    = 2 * time.Minute
	routedWithin   = 20 * time.Second
	measuredWithin = 8 * time.Second // a replica is measured every few seconds
	warmUp         = time.Second
	fewest         = 10               // requests that verify a rate,
	longest        = 30 * time.Second // unless that takes longer
	tries          = 3                // recommendations that are verified: each has more instances
)

// run makes the endpoint, measures, recommends and verifies. What it made is gone when it returns.
func (p *profiler) run(ctx context.Context) (err error) {
	if err := p.app.bring(ctx, p.c, p.dep); err != nil {
		return err
	}
	p.endpoint = "profile-" + strings.ToLower(rand.Text()[:6])
	defer func() {
		if gone := p.clean(ctx); gone != nil {
			err = errors.Join(err, fmt.Errorf("the temporary endpoint is still there: %w; delete it: trainyard online-endpoint delete --name %s --yes", gone, p.endpoint))
		}
	}()
	if err := p.open(ctx); err != nil {
		return err
	}
	if err := p.measureNeed(ctx); err != nil {
		return err
	}
	if err := p.measureSizes(ctx); err != nil {
		return err
	}
	rec, err := rightsize.Recommend(p.rep.Sizes, p.rep.Goal, p.rep.NeedMB)
	if err != nil {
		return err
	}
	p.rep.Recommendation = &rec
	if !p.verify {
		return nil
	}
	return p.verifyAll(ctx)
}

// measureNeed sees how much memory the model takes where it has plenty.
func (p *profiler) measureNeed(ctx context.Context) error {
	size, err := rightsize.Roomiest(p.sizes, p.machine, p.gpus)
	if err != nil {
		return err
	}
	p.app.say("measuring the memory that the model needs, on %s (%g GiB)", size.Name, size.MemoryGB)
	var load rightsize.Load
	if err = p.serve(ctx, "need", size, 1, p.roomy()); err == nil {
		load = rightsize.Closed(ctx, p.send, min(4, p.most), max(warmUp, p.each/2))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now, lookErr := p.settled(ctx)
	switch {
	case now.outOfMemory():
		return trainyard.Errorf(trainyard.CodeConflict, "the model runs out of memory on %s already, and of the sizes that may be used none has more than its %d MB", size.Name, size.MemoryMB())
	case err != nil:
		return err
	case load.Failed > 0:
		return trainyard.Errorf(trainyard.CodeConflict, "%d of %d sample requests failed on %s: %s", load.Failed, load.Requests, size.Name, load.Why)
	case lookErr != nil:
		return lookErr
	}
	p.rep.MeasuredOn = size.Name
	p.needs(now.PeakMB)
	p.app.say("it needs %d MB; sizes from %d MB come into question", p.rep.NeedMB, p.rep.WantMB)
	return p.drop(ctx)
}

// needs takes what an instance was seen to use.
func (p *profiler) needs(mb int64) {
	p.rep.NeedMB = max(p.rep.NeedMB, mb)
	p.rep.WantMB = int64(math.Ceil(rightsize.Margin * float64(p.rep.NeedMB)))
}

// measureSizes tries one size after the other, up to the first that is fast enough; named ones all.
func (p *profiler) measureSizes(ctx context.Context) error {
	trials := rightsize.Trials(p.sizes, p.named, p.machine, p.gpus, p.rep.NeedMB)
	enough := ""
	for i := range trials {
		t := &trials[i]
		if t.Shrink(p.rep.NeedMB); t.Outcome != "" {
			continue
		}
		if enough != "" && !p.named && p.rep.Goal.P99MS > 0 {
			t.Outcome, t.Why = rightsize.NotNeeded, enough+" is fast enough"
			continue
		}
		if err := p.measure(ctx, t); err != nil {
			return err
		}
		p.needs(rightsize.Need(p.rep.NeedMB, trials))
		if _, ok := t.Best(p.rep.Goal); ok && t.Outcome == rightsize.Measured && rightsize.Roomy(t.Size, p.rep.NeedMB) && enough == "" {
			enough = t.Name
		}
	}
	p.rep.Sizes = trials
	return nil
}

// measure tries one size. Only what keeps the whole from going on is an error.
func (p *profiler) measure(ctx context.Context, t *rightsize.Trial) error {
	p.app.say("measuring %s: %d vCPUs, %g GiB, $%.3f an hour", t.Name, t.VCPUs, t.MemoryGB, t.PricePerHour)
	name := "on-" + strings.TrimPrefix(strings.ReplaceAll(strings.ToLower(t.Name), "_", "-"), "standard-")
	err := p.serve(ctx, name[:min(32, len(name))], t.Size, 1, p.roomy())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		err = p.climb(ctx, t)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now, lookErr := p.settled(ctx)
	if lookErr != nil && err == nil {
		return lookErr
	}
	t.PeakMB, t.CPUPercent = max(t.PeakMB, now.PeakMB), max(t.CPUPercent, now.cpu())
	switch {
	case now.outOfMemory():
		t.Outcome, t.Why, t.Points = rightsize.OutOfMemory, fmt.Sprintf("used all of its %d MB", t.MemoryMB()), nil
		t.PeakMB = max(t.PeakMB, t.MemoryMB())
		p.app.say("%s is out of memory: the model used all of its %d MB", t.Name, t.MemoryMB())
	case err != nil:
		t.Outcome = rightsize.Failed
		t.Why, _, _ = strings.Cut(err.Error(), "\n")
		p.app.say("%s: %s", t.Name, t.Why)
	default:
		t.Outcome = rightsize.Measured
	}
	return p.drop(ctx)
}

// climb asks with more and more requests at once, until that brings no more, takes too long or fails.
func (p *profiler) climb(ctx context.Context, t *rightsize.Trial) error {
	if warm := rightsize.Closed(ctx, p.send, 1, min(warmUp, p.each)); warm.Failed == warm.Requests && ctx.Err() == nil {
		return trainyard.Errorf(trainyard.CodeConflict, "the sample request fails: %s", warm.Why)
	}
	best, flat := 0.0, 0
	for n := 1; n <= p.most && flat < 2 && ctx.Err() == nil; n *= 2 {
		p.app.status("%s: %d at once", t.Name, n)
		load := rightsize.Closed(ctx, p.send, n, p.each)
		t.Points = append(t.Points, rightsize.Point{Concurrency: n, Load: load})
		p.app.say("  %3d at once: %8.1f requests/s, p50 %s, p95 %s, p99 %s, %d failed", n, load.PerSecond, rightsize.Millis(load.P50MS), rightsize.Millis(load.P95MS),
			rightsize.Millis(load.P99MS), load.Failed)
		if now, err := p.look(ctx); err == nil {
			t.CPUPercent = max(t.CPUPercent, now.cpu())
			if now.outOfMemory() {
				break
			}
		}
		if !p.rep.Goal.Fits(load) {
			break
		}
		if flat++; load.PerSecond > 1.05*best {
			flat = 0
		}
		best = max(best, load.PerSecond)
	}
	return ctx.Err()
}

// verifyAll applies the rate to what is recommended. If that does not hold, it recommends more instances, and applies it again.
func (p *profiler) verifyAll(ctx context.Context) error {
	rec := p.rep.Recommendation
	size, err := rightsize.Pick(p.sizes, []string{rec.Size})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		v, err := p.verifyOnce(ctx, size[0], *rec)
		if err != nil {
			return err
		}
		p.rep.Verification = v
		if v.Held || try == tries || p.rep.Goal.Rate == 0 {
			return p.drop(ctx)
		}
		p.app.say("it did not hold: %s; trying %s", v.Why, plural(rec.More(), "instance"))
		rec.Why += fmt.Sprintf("; %s did not hold when the rate was applied", plural(rec.Instances, "instance"))
		*rec = rec.Out(size[0], rec.More())
	}
}

// verifyOnce deploys what is recommended, or as much of it as this machine holds, and applies the rate, or its share.
func (p *profiler) verifyOnce(ctx context.Context, size rightsize.Size, rec rightsize.Recommendation) (*verification, error) {
	v := &verification{Size: size.Name, Instances: rec.Instances, Rate: cmp.Or(p.rep.Goal.Rate, rec.PerInstance)}
	if fit := p.machine.Instances(size); fit >= 0 && fit < v.Instances {
		v.Rate, v.Instances, v.Share = v.Rate*float64(fit)/float64(v.Instances), fit, true
	}
	p.app.say("verifying: %.1f requests/s on %s of %s", v.Rate, plural(v.Instances, "instance"), size.Name)
	set := trainyard.RequestSettings{}
	if s := p.dep.Spec.RequestSettings; s != nil {
		set = *s
	}
	set.MaxConcurrentRequestsPerInstance = rec.Concurrency
	if err := p.serve(ctx, "check", size, v.Instances, set); err != nil {
		return nil, err
	}
	rightsize.Open(ctx, p.send, v.Rate, min(warmUp, p.each))
	few := time.Duration(fewest / v.Rate * float64(time.Second))
	v.Load = rightsize.Open(ctx, p.send, v.Rate, max(p.each, min(few, longest)))
	v.Held, v.Why = p.rep.Goal.Holds(v.Load, v.Rate)
	return v, ctx.Err()
}

// roomy are settings under which the gateway refuses nothing that a load sends.
func (p *profiler) roomy() trainyard.RequestSettings {
	set := trainyard.RequestSettings{RequestTimeout: "PT1M", MaxConcurrentRequestsPerInstance: p.most, MaxQueueWait: "PT1M"}
	if s := p.dep.Spec.RequestSettings; s != nil && s.RequestTimeout != "" {
		set.RequestTimeout = s.RequestTimeout
	}
	return set
}
