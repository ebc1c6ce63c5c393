package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/loop"
)

// slowSource is a server that takes its time to say what there is.
type slowSource struct{ after time.Duration }

func (s slowSource) Routes(ctx context.Context, after int64) (trainyard.Routes, error) {
	wait := s.after
	if after > 0 {
		wait = time.Hour
	}
	select {
	case <-ctx.Done():
		return trainyard.Routes{}, ctx.Err()
	case <-time.After(wait):
	}
	return trainyard.Routes{Rev: 1, Endpoints: []trainyard.EndpointRoute{{Name: "wine"}}}, nil
}

func (slowSource) Report(context.Context, trainyard.GatewayReport) error { return nil }
func (slowSource) Connect(context.Context, trainyard.TaskID) (net.Conn, error) {
	return nil, net.ErrClosed
}
func (slowSource) CheckToken(context.Context, string, string) (time.Time, error) {
	return time.Time{}, nil
}
func (slowSource) Collect(context.Context, string, string, string, []byte) error { return nil }

// A caller who comes in the moment in which the server starts is not told that the endpoint does not exist.
func TestAGatewayThatStartsKnowsItsEndpointsBeforeItAnswers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := identity.Certificates(t.TempDir(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	group := loop.New(log)
	defer group.Stop()
	runGateway(group, ln, cert, gateway.Config{Source: slowSource{200 * time.Millisecond}, Log: log})
	res, err := http.Get("http://" + ln.Addr().String() + "/endpoints/wine/score")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized { // it is there, and wants a key
		t.Errorf("answered %s", res.Status)
	}
}
