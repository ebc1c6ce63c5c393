//go:build !windows

package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestReplicasReachTheirNode(t *testing.T) {
	for name, network := range map[string]func(t *testing.T, c Config) string{
		"from a network of their own": newNetwork,
		"from the computer's network": func(*testing.T, Config) string { return hostNetwork },
	} {
		t.Run(name, func(t *testing.T) {
			c := needEngine(t)
			c.Network = network(t, c)
			d := reopen(t, c, t.TempDir(), trainyard.Resources{})
			t.Cleanup(func() { d.Close() })
			host, err := d.Reached(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "reached") })}
			go func() { _ = srv.Serve(ln) }()
			t.Cleanup(func() { srv.Close() })
			task := newReplica(t)
			task.Run.Command = fmt.Sprintf(`python3 -c '
import os, urllib.request
open(os.environ["FOLDER"] + "/model", "w").write(urllib.request.urlopen("http://%s/", timeout=20).read().decode())' && `, ln.Addr()) + task.Run.Command
			start(t, d, task)
			t.Cleanup(func() { _ = d.Remove(context.Background(), task.ID) })
			if _, text := answers(t, d, task.ID); text != "reached" {
				t.Errorf("the replica got %q", text)
			}
		})
	}
}
