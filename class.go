package trainyard

import (
	"errors"
	"time"
)

// ClassError is an error that knows which end it makes of a task: staging and drivers return it, the agent turns it into a Result.
type ClassError struct {
	Class Class
	Err   error
}

func (e *ClassError) Error() string { return e.Err.Error() }
func (e *ClassError) Unwrap() error { return e.Err }

// ClassOf is the class of the first ClassError in err's chain: ClassOK for nil, "" when no error in the chain says.
func ClassOf(err error) Class {
	if err == nil {
		return ClassOK
	}
	if e, ok := errors.AsType[*ClassError](err); ok {
		return e.Class
	}
	return ""
}

// Progress is where whoever prepares or finishes a task says what it is doing. Its methods return at once and may be called from several
// goroutines.
type Progress interface {
	// Say replaces the line that tells a user what the task is waiting for: "building environment sklearn-1.5".
	Say(text string)
	// Span puts a piece of time on the task's timeline. A zero end means it lasts; a later call with the same name and start ends it.
	Span(name string, start, end time.Time, note string)
	// Log appends bytes to one of the job's log files, named as users see it: "system_logs/environment.txt". They reach the server while
	// the work goes on, survive the agent, and are all there before the task counts as ended.
	Log(name string, data []byte)
}
