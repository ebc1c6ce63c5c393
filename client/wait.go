package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Operation is a long-running operation as it stands.
type Operation struct {
	Status  string           `json:"status"` // InProgress, Succeeded, Failed, Canceled
	Percent float64          `json:"percentComplete"`
	Error   *trainyard.Error `json:"error"`
}

// Wait waits until the operation that a call started has ended; a call that started none has ended already. seen, which may be nil, is
// told after each look. An operation that failed is an error. Looks come quickly at first, then as often as the server asks.
func (c *Client) Wait(ctx context.Context, a *Answer, seen func(Operation)) error {
	link := cmp.Or(a.Header.Get("Azure-AsyncOperation"), a.Header.Get("Location"))
	if link == "" {
		return nil
	}
	r, err := c.follow(Request{Method: http.MethodGet}, link)
	if err != nil {
		return err
	}
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, time.Minute) {
		look, err := c.Do(ctx, r)
		if err != nil {
			return err
		}
		op, err := readOperation(look)
		if err != nil {
			return fmt.Errorf("read operation %s: %w", r.Path, err)
		}
		if seen != nil {
			seen(op)
		}
		switch strings.ToLower(op.Status) {
		case "succeeded":
			return nil
		case "failed", "canceled", "cancelled":
			if op.Error != nil && op.Error.Message != "" {
				return op.Error
			}
			return trainyard.Errorf(trainyard.CodeInternal, "the operation %s, and the server does not say why", strings.ToLower(op.Status))
		}
		most := cmp.Or(retryAfter(look.Header), time.Second)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, most)):
		}
	}
}

// readOperation understands a status object (Azure-AsyncOperation) as well as a bare answer whose status code says it all (Location).
func readOperation(a *Answer) (Operation, error) {
	op := Operation{Status: "Succeeded"}
	if a.Status == http.StatusAccepted {
		op.Status = "InProgress"
	}
	if len(a.Body) == 0 {
		return op, nil
	}
	var body Operation
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return op, err
	}
	if body.Status == "" {
		return op, nil
	}
	return body, nil
}
