package target

import (
	"io"
	"math/rand/v2"
	"net"
	"strconv"

	"github.com/trainyard/trainyard"
)

// Ports for replicas are taken from a range in which neither systems choose ports by themselves nor the ranks of a gang meet.
const (
	firstPort = 10_000
	ports     = 10_000
	portTries = 1000
)

// FreePort finds a port of loopback that nobody listens on. A model may load for minutes before it listens, so until hold is closed the
// UDP port of the same number tells others who look for one on this computer that it is taken.
func FreePort() (port int, hold io.Closer, err error) {
	for range portTries {
		port = firstPort + rand.IntN(ports)
		if hold, err = HoldPort(port); err != nil {
			continue
		}
		var ln net.Listener
		if ln, err = net.Listen("tcp", Loopback(port)); err == nil {
			return port, hold, ln.Close()
		}
		hold.Close()
	}
	return 0, nil, trainyard.Errorf(trainyard.CodeBusy, "no free port was found for the replica in %d to %d: %v", firstPort, firstPort+ports-1, err)
}

// HoldPort keeps a port that FreePort found before from others, after a restart.
func HoldPort(port int) (io.Closer, error) { return net.ListenPacket("udp", Loopback(port)) }

// Loopback is the address of a port of this computer.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
