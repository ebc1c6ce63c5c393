package kube

import "time"

// The kubelet tells within a second or two that a container runs, and it has run for most of that by then. So a pod is tried for whether the
// program can be sent: first when the one before it could be, and then again and again, at times that lie further apart the longer it takes.
const (
	firstGuess = 90 * time.Millisecond  // after its node took the pod on, at the earliest
	lateGuess  = 400 * time.Millisecond // the latest that the first one is
	nextGuess  = 20 * time.Millisecond  // to the next, and an eighth of the time that has passed
	lastGuess  = 5 * time.Second        // after that there is none
)

// crowd is of how many waiting tasks on none is guessed about: a guess that fails is work that the others' pods wait for.
const crowd = 3

// mayGuess says whether now is a time to try.
func (d *tender) mayGuess(now time.Time) bool {
	if d.taken.IsZero() {
		d.mu.Lock()
		first := min(max(d.pace, firstGuess), lateGuess)
		d.mu.Unlock()
		d.taken, d.guess = now, now.Add(first)
	}
	return !now.Before(d.guess) && now.Sub(d.taken) < lastGuess && !d.crowded()
}

// guessAgain sets the time of the next, after one that failed.
func (d *tender) guessAgain() {
	d.guessed++
	d.guess = time.Now().Add(nextGuess + time.Since(d.taken)/8)
}

// learn notes when a guess was right. One that was so at once may have been late.
func (d *tender) learn(at time.Time) {
	took := at.Sub(d.taken)
	if d.guessed == 0 {
		took -= took / 10
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pace = took
}

// crowdComes says whether as many tasks as make a crowd are on their way: all is there that they need, and they have not begun.
func (d *Driver) crowdComes() bool {
	return d.waits(crowd, func(t *task) bool {
		if t.rec.UID == "" || t.job != nil && t.job.Spec.Suspend {
			return false
		}
		for _, p := range t.pods {
			if c := p.pod.condition("PodScheduled"); c != nil && c.Status == "False" { // there is no room for it
				return false
			}
		}
		return true
	})
}

// crowded says whether as many tasks as make a crowd have not begun.
func (d *Driver) crowded() bool { return d.waits(crowd, func(*task) bool { return true }) }

// crowdWith says whether they do with one more.
func (d *Driver) crowdWith(name string) bool {
	return d.waits(crowd-1, func(t *task) bool { return t.name != name && t.rec.Main == "" })
}

// waits says whether n tasks of a kind have not begun.
func (d *Driver) waits(n int, of func(*task) bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.end == nil && len(t.rec.Begun) == 0 && of(t) {
			if n--; n == 0 {
				return true
			}
		}
	}
	return false
}
