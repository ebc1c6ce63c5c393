package studio

import (
	"fmt"
	"time"

	"github.com/trainyard/trainyard"
)

// spansAtMost are shown; a job that was tried very often shows its last.
const spansAtMost = 40

// scale is the width of drawings, in units of their own.
const scale = 1000

// bar is a span of a timeline to scale: X and W are of 1000.
type bar struct {
	Class, Name, What, Note string
	X, W                    string
	Took                    lasting
	Share                   string
}

type timelineView struct {
	Bars   []bar
	Total  lasting
	Hidden int // spans before the first that is shown
}

// spanWords say what a job's time went to, for people who meet the words for the first time.
var spanWords = map[string]string{
	trainyard.SpanQueue: "waiting for room", trainyard.SpanNode: "waiting for its node", trainyard.SpanCode: "fetching code",
	trainyard.SpanData: "fetching data", trainyard.SpanEnvironment: "preparing the environment", trainyard.SpanStart: "starting",
	trainyard.SpanUser: "running your command", trainyard.SpanUpload: "storing outputs and logs", trainyard.SpanFinish: "finishing",
}

func timelineOf(j *trainyard.Job, now time.Time) timelineView {
	spans := j.Status.Timeline
	v := timelineView{}
	if len(spans) == 0 {
		return v
	}
	over := j.Status.State.Terminal()
	v.Total = lastingOf(now, j.Created, j.Status.Ended)
	if len(spans) > spansAtMost {
		v.Hidden = len(spans) - spansAtMost
		spans = spans[v.Hidden:]
	}
	first, last := spans[0].Start, endOf(spans[len(spans)-1], now)
	whole := max(last.Sub(first), time.Microsecond)
	for i, s := range spans {
		end := endOf(s, now)
		b := bar{Class: spanClass(s.Name), Name: s.Name, What: spanWords[s.Name], Note: s.Note, Took: lastingOf(now, s.Start, end)}
		if i == len(spans)-1 && !over {
			b.Took = lastingOf(now, s.Start, time.Time{})
		}
		share := float64(end.Sub(s.Start)) / float64(whole)
		b.Share = fmt.Sprintf("%.0f %%", 100*share)
		width := max(scale*share, 2) // what was there is seen
		b.X = fmt.Sprintf("%.1f", min(scale*float64(s.Start.Sub(first))/float64(whole), scale-width))
		b.W = fmt.Sprintf("%.1f", width)
		v.Bars = append(v.Bars, b)
	}
	return v
}

func endOf(s trainyard.Span, now time.Time) time.Time {
	if s.End.IsZero() {
		return now
	}
	return s.End
}

// spanClass is the class of a span's colour; names that are not ours have one colour.
func spanClass(name string) string {
	if _, ok := spanWords[name]; ok {
		return "t-" + name
	}
	return "t-other"
}
