package docker

import (
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
)

// Engine is what people call it.
func (d *Driver) Engine() string { return "the Docker engine" }

// watchPause is between tries to hear from an engine that is away.
const watchPause = 500 * time.Millisecond

// watch signals when containers of ours begin or end, and when the engine comes or goes.
func (d *Driver) watch() {
	filters := client.Filters{}.Add("type", "container").Add("label", labelGroup+"="+d.env.Group).Add("event", "start", "die", "destroy")
	for {
		stream := d.engine.Events(d.run, client.EventsListOptions{Filters: filters})
		d.listen(true)
		d.signal() // there may have been something while nobody listened
		for open := true; open; {
			select {
			case m := <-stream.Messages:
				if m.Action == events.ActionDie {
					d.setDied(trainyard.TaskID(m.Actor.Attributes[labelTask]).Dir(), true)
				}
				d.signal()
			case err := <-stream.Err:
				if d.run.Err() == nil {
					d.env.Log.Debug("events of the Docker engine", "err", err)
				}
				d.listen(false)
				open = false
			case <-d.run.Done():
				return
			}
		}
		select {
		case <-d.run.Done():
			return
		case <-time.After(watchPause):
		}
	}
}

// listen notes that the engine's events are heard from now on, or not any more. What there is must be listed anew.
func (d *Driver) listen(hears bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listening, d.listed = hears, time.Time{}
	d.turn++
}

// setDied notes what the engine has said of a task's container.
func (d *Driver) setDied(dir string, died bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[dir]; t != nil {
		t.died = died
	}
}
