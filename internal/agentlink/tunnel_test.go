package agentlink

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// waiting is a server that asked for the connection "wanted" of node-1.
type waiting struct{ got chan arrived }

type arrived struct {
	conn net.Conn
	why  error
}

func (w waiting) Dialled(_ context.Context, node trainyard.NodeID, id string, conn net.Conn, why error) error {
	if node != "node-1" || id != "wanted" {
		return trainyard.NotFound("node %q was not asked for %q", node, id)
	}
	w.got <- arrived{conn, why}
	return nil
}

// tunnelled is both ends over TLS, and a connection with a replica that is the client's to hand over.
func tunnelled(t *testing.T) (w waiting, srv *httptest.Server, c *Client, replica, near net.Conn) {
	t.Helper()
	w = waiting{make(chan arrived, 1)}
	srv = httptest.NewUnstartedServer(Handler(Config{Server: &fake{}, Tunnels: w, Auth: auth}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c = dialTo(t, srv, srv.URL, patience)
	if _, err := c.Join(t.Context(), trainyard.NodeInfo{Node: "node-1"}); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if replica, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); replica.Close() })
	for _, conn := range []net.Conn{near, replica} {
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	}
	return w, srv, c, replica, near
}

func TestAConnectionToAReplicaIsCarriedBothWaysAndEachEndMayFinishFirst(t *testing.T) {
	w, _, c, replica, near := tunnelled(t)
	_ = near.SetDeadline(time.Time{})
	if err := c.Dialled(t.Context(), "node-1", "wanted", near, nil); err != nil {
		t.Fatal(err)
	}
	far := (<-w.got).conn
	_ = far.SetDeadline(time.Now().Add(30 * time.Second))
	question := strings.Repeat("how much? ", 100_000)
	go func() {
		_, _ = io.WriteString(far, question)
		_ = far.(interface{ CloseWrite() error }).CloseWrite()
	}()
	asked, err := io.ReadAll(replica) // to the end: the server's half-close has arrived
	if err != nil || string(asked) != question {
		t.Fatalf("the replica got %d bytes of %d, %v", len(asked), len(question), err)
	}
	if _, err := io.WriteString(replica, "so much"); err != nil {
		t.Fatal(err)
	}
	replica.Close()
	if got, err := io.ReadAll(far); err != nil || string(got) != "so much" {
		t.Errorf("the server got %q, %v", got, err)
	}
	far.Close()
}

func TestAReplicaThatCannotBeReachedIsToldAtOnce(t *testing.T) {
	w, _, c, _, _ := tunnelled(t)
	if err := c.Dialled(t.Context(), "node-1", "wanted", nil, errors.New("connection refused")); err != nil {
		t.Fatal(err)
	}
	if a := <-w.got; a.conn != nil || a.why == nil || !strings.Contains(a.why.Error(), "connection refused") {
		t.Errorf("the server was told %+v", a)
	}
}

func TestNobodyTakesAnothersConnection(t *testing.T) {
	w, _, c, replica, near := tunnelled(t)
	token := "node-2's"
	c.token.Store(&token)
	if err := c.Dialled(t.Context(), "node-1", "wanted", near, nil); trainyard.CodeOf(err) != trainyard.CodeForbidden {
		t.Errorf("with another node's token: %v", err)
	}
	if err := c.Dialled(t.Context(), "node-2", "wanted", nil, errors.New("no")); !trainyard.IsNotFound(err) {
		t.Errorf("what another node was asked for: %v", err)
	}
	_ = near.SetDeadline(time.Time{})
	if err := c.Dialled(t.Context(), "node-2", "wanted", near, nil); err == nil { // it is upgraded first, and then hung up on
		if n, err := replica.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came through", n)
		}
	}
	select {
	case a := <-w.got:
		t.Errorf("somebody else's connection arrived: %+v", a)
	default:
	}
}

func TestTheClientEndsWhatItCarries(t *testing.T) {
	w, _, c, replica, near := tunnelled(t)
	if err := c.Dialled(t.Context(), "node-1", "wanted", near, nil); err != nil {
		t.Fatal(err)
	}
	far := (<-w.got).conn
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]net.Conn{"server": far, "replica": replica} {
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the %s's end lives: %v", name, err)
		}
	}
	if err := c.Dialled(t.Context(), "node-1", "wanted", near, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed client takes connections: %v", err)
	}
}
