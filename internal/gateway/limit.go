package gateway

// Bounds on clients' connections where none is given.
const (
	mostConns  = 20_000
	leastConns = 64
)

// connsFor is how many clients may be connected where a process may have so many files open: a third, because a request wants a connection
// to a replica as well, and the rest of the program files of its own.
func connsFor(files uint64) int {
	if files == 0 || files/3 > mostConns {
		return mostConns
	}
	return max(leastConns, int(files/3))
}

// bounded is a listener that holds connections back until they have said something, and must not hold more than there is room for.
type bounded interface {
	Bound(room func() int)
}

// room is how many more connections the gateway takes.
func (g *Gateway) room() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config.MaxConns - len(g.conns)
}
