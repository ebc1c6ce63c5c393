package gateway

import (
	"context"
	"net"
	"time"

	"github.com/trainyard/trainyard"
)

// Fixed is a Source whose routes never change and who hears no reports: for measuring a gateway by itself.
type Fixed trainyard.Routes

var _ Source = Fixed{}

// Routes are the routes, at once for who has none and otherwise when ctx is done.
func (f Fixed) Routes(ctx context.Context, after int64) (trainyard.Routes, error) {
	if f.Rev <= after {
		<-ctx.Done()
		return trainyard.Routes{}, ctx.Err()
	}
	return trainyard.Routes(f), nil
}

// Report forgets the report.
func (Fixed) Report(context.Context, trainyard.GatewayReport) error { return nil }

// Connect knows no way.
func (Fixed) Connect(_ context.Context, task trainyard.TaskID) (net.Conn, error) {
	return nil, trainyard.NotFound("there is no way to %s", task.Words())
}

// CheckToken knows no token.
func (Fixed) CheckToken(context.Context, string, string) (time.Time, error) {
	return time.Time{}, trainyard.Errorf(trainyard.CodeUnknown, "no token is good here")
}

// Collect forgets the rows.
func (Fixed) Collect(context.Context, string, string, string, []byte) error { return nil }
