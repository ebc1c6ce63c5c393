package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How the gateway is measured: every way in turn, so that what else goes on at the computer goes on for all.
const (
	manyClients  = 64
	speedRounds  = 5
	manyDuration = 3 * time.Second
	oneDuration  = 2 * time.Second
)

// wayRow is a row of the table of ways to a replica.
type wayRow struct {
	name         string
	rate, share  float64 // requests/s, and as a part of nginx's
	p50, p99     time.Duration
	processor    time.Duration // of the proxy, a request
	more50, more time.Duration // what one request after the other takes more than without a proxy: p50, p99
	alone        bool          // the replica itself
}

// speed measures the gateway, nginx and the standard library's proxy in front of the same replica.
func (y *yard) speed(ctx context.Context, out *serving) error {
	w, err := newWrk(y.files)
	if err != nil {
		out.leftOut = append(out.leftOut, "gateway beside nginx: "+err.Error())
		return nil
	}
	ways, end, err := y.ways(ctx, out)
	defer end()
	if err != nil {
		return err
	}
	many, one := make([][]sample, len(ways)), make([][]sample, len(ways))
	for round := range speedRounds + 1 {
		for i := range ways {
			at := (i + round) % len(ways)
			a, err := w.sample(ctx, ways[at], manyClients, manyDuration)
			if err != nil {
				return err
			}
			b, err := w.sample(ctx, ways[at], 1, oneDuration)
			if err != nil {
				return err
			}
			if round > 0 { // the first warms up
				many[at], one[at] = append(many[at], a), append(one[at], b)
			}
		}
	}
	out.ways = compare(ways, many, one)
	for _, r := range out.ways {
		fmt.Fprintf(os.Stderr, "%-40s %.0f requests/s, × %.2f of nginx, p50 %s, p99 %s, %s of processor; one by one p50 +%s, p99 +%s\n",
			r.name, r.rate, r.share, fine(r.p50), fine(r.p99), fine(r.processor), fine(r.more50), fine(r.more))
	}
	return nil
}

// ways starts what is measured. end is to be called in every case.
func (y *yard) ways(ctx context.Context, out *serving) (ways []way, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	url, key, replica, err := y.quickEndpoint(ctx)
	if err != nil {
		return nil, end, err
	}
	ways = append(ways, way{name: "the replica itself", url: "http://" + replica + "/score"})
	n, stop, err := nginx(ctx, y.files, replica)
	if err != nil {
		out.leftOut = append(out.leftOut, "nginx: "+err.Error())
	} else {
		ways, ends = append(ways, n), append(ends, stop)
	}
	ways = append(ways, way{name: "Trainyard's gateway in the server", url: url, key: key, pids: []int{y.cmd.Process.Pid}})
	g, err := begin(ctx, y.environ(), filepath.Join(y.files, "gateway.log"), y.binary, "gateway", "--listen", "127.0.0.1:0", "--data", filepath.Join(y.files, "gateway"))
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, g.end)
	base := g.first[strings.LastIndexByte(g.first, ' ')+1:]
	own := base + url[strings.Index(url, "/endpoints/"):]
	if err := ready(ctx, own, key); err != nil {
		return nil, end, err
	}
	ways = append(ways, way{name: "`trainyard gateway`, a process of its own", url: own, key: key, pids: []int{g.cmd.Process.Pid}})
	r, err := begin(ctx, os.Environ(), filepath.Join(y.files, "reverse.log"), y.self, "reverse-proxy", "127.0.0.1:0", "http://"+replica)
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, r.end)
	ways = append(ways, way{name: "Go's `httputil.ReverseProxy`", url: "http://" + r.first + "/score", pids: []int{r.cmd.Process.Pid}})
	return ways, end, nil
}

// quickEndpoint makes an endpoint with two deployments that share the traffic 90 to 10, and finds where the first one's replica answers.
func (y *yard) quickEndpoint(ctx context.Context) (url, key, replica string, err error) {
	if err := y.writeQuick(); err != nil {
		return "", "", "", err
	}
	if err := y.cli(ctx, "online-endpoint", "create", "-n", "speed", "-o", "none"); err != nil {
		return "", "", "", err
	}
	for _, name := range []string{"blue", "green"} {
		if err := y.deploy(ctx, name, y.quick("speed", name)); err != nil {
			return "", "", "", err
		}
	}
	if err := y.cli(ctx, "online-endpoint", "update", "-n", "speed", "--traffic", "blue=90 green=10", "-o", "none"); err != nil {
		return "", "", "", err
	}
	if url, key, err = y.address(ctx, "speed"); err != nil {
		return "", "", "", err
	}
	c, err := y.client()
	if err != nil {
		return "", "", "", err
	}
	for job, err := range y.replicas(ctx, c, "speed", "blue") {
		if err != nil {
			return "", "", "", err
		}
		if a := job.address(); a != "" {
			replica = a
		}
	}
	if replica == "" {
		return "", "", "", errors.New("no replica of blue says where it answers")
	}
	return url, key, replica, ready(ctx, url, key)
}

// ready waits until an endpoint answers: a gateway hears of it in its own time.
func ready(ctx context.Context, url, key string) error {
	for try := 0; ; try++ {
		_, _, err := score(ctx, url, key)
		if err == nil || try == 100 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sample is one run of the load tool, and the processor time of the proxy in it.
type sample struct {
	load
	processor time.Duration
}

func (w *wrk) sample(ctx context.Context, to way, connections int, d time.Duration) (sample, error) {
	before, err := processorTime(to.pids)
	if err != nil {
		return sample{}, err
	}
	l, err := w.run(ctx, to, connections, d)
	if err != nil {
		return sample{}, err
	}
	after, err := processorTime(to.pids)
	return sample{*l, after - before}, err
}

// compare makes the table: medians over the rounds.
func compare(ways []way, many, one [][]sample) []wayRow {
	var rows []wayRow
	of := func(samples []sample, f func(*sample) float64) float64 {
		var all []float64
		for i := range samples {
			all = append(all, f(&samples[i]))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	micros := func(f float64) time.Duration { return time.Duration(f * float64(time.Microsecond)) }
	p50 := func(s *sample) float64 { return float64(s.P50) }
	p99 := func(s *sample) float64 { return float64(s.P99) }
	nginx := 0.0
	for i, w := range ways {
		r := wayRow{name: w.name, alone: len(w.pids) == 0, p50: micros(of(many[i], p50)), p99: micros(of(many[i], p99))}
		r.rate = of(many[i], func(s *sample) float64 { return s.rate() })
		r.processor = time.Duration(of(many[i], func(s *sample) float64 { return float64(s.processor) / float64(s.Requests) }))
		r.more50 = micros(of(one[i], p50) - of(one[0], p50))
		r.more = micros(of(one[i], p99) - of(one[0], p99))
		if w.name == "nginx" {
			nginx = r.rate
		}
		rows = append(rows, r)
	}
	for i := range rows {
		if nginx > 0 {
			rows[i].share = rows[i].rate / nginx
		}
	}
	return rows
}

// fine is a duration in microseconds, or milliseconds where they are many.
func fine(d time.Duration) string {
	if d.Abs() >= 10*time.Millisecond {
		return ms(d)
	}
	return fmt.Sprintf("%.0f µs", float64(d.Nanoseconds())/1000)
}
