package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard/internal/agent"
)

// An agent that begins anew, because an engine came, hears of the notice that the one before it had, and how much of its time is left.
func TestNoticeOutlastsTheAgentThatItCameTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := make(chan agent.Notice, 1)
		notice := lasting{from: from}
		before, end := context.WithCancel(t.Context())
		end()
		none := make(chan agent.Notice, 1)
		if notice.to(before, none); len(none) != 0 {
			t.Error("there is a notice before it has come")
		}
		from <- agent.Notice{Why: "preempted", Within: 30 * time.Second}
		for i, within := range []time.Duration{30, 10, 0} {
			yield := make(chan agent.Notice, 1)
			notice.to(t.Context(), yield)
			if n := <-yield; n.Why != "preempted" || n.Within != within*time.Second {
				t.Errorf("agent %d hears %+v", i, n)
			}
			<-time.After(20 * time.Second)
		}
	})
}
