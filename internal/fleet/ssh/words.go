package ssh

import (
	"errors"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
)

// troubleOf is what err says; what is not a trouble is one with the network.
func troubleOf(err error) login.Trouble {
	if t, ok := errors.AsType[login.Trouble](err); ok {
		return t
	}
	if e, ok := errors.AsType[*trainyard.Error](err); ok {
		return login.Trouble{Kind: login.Access, Short: e.Message, Err: err}
	}
	return login.Trouble{Kind: login.Network, Short: err.Error(), Err: err}
}

// there is trouble with something on the machine; short is for notes.
func there(short string, err error) error {
	return login.Trouble{Kind: login.There, Short: short, Err: err}
}

// clock is a time for a note.
func clock(t, now time.Time) string {
	if now.Sub(t) > 20*time.Hour {
		return t.Format("2006-01-02 15:04")
	}
	return t.Format("15:04")
}
