package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// SessionLife is how long a browser stays logged in, at most; TicketLife is how long a ticket waits to be used.
const (
	SessionLife = 12 * time.Hour
	TicketLife  = 2 * time.Minute
)

// maxTickets bounds the tickets that wait to be used, all users' together.
const maxTickets = 1000

// Session is a browser that is logged in. Value is what its cookie holds.
type Session struct {
	Value   string
	User    trainyard.User
	Expires time.Time
}

// Sessions let browsers in, which have no token to send: for a token they give a session, at once or by way of a ticket, a word that is
// good once and for a short time and so may stand in a URL. A session is signed and survives a restart of the server; it never outlives
// the token that it was made from, and is no token itself. Tickets, and which sessions were ended early, are forgotten at a restart.
type Sessions struct {
	id  *Service
	key []byte

	mu      sync.Mutex
	tickets map[[sha256.Size]byte]sessionClaims // by the ticket's hash; Expires and Until as for the session to come
	ended   map[string]time.Time                // IDs of sessions that were ended, and when they would have
}

// sessionClaims are a session's contents.
type sessionClaims struct {
	User    trainyard.User `json:"user"`
	Expires time.Time      `json:"expires"`        // of the ticket while it is one, else of the session
	Until   time.Time      `json:"until,omitzero"` // a ticket's: the end of the token it was made from
	ID      string         `json:"id"`
}

// NewSessions makes Sessions for the users whose tokens id makes.
func NewSessions(id *Service) *Sessions {
	return &Sessions{id: id, key: id.Derive("browser sessions"), tickets: map[[sha256.Size]byte]sessionClaims{}, ended: map[string]time.Time{}}
}

// Ticket makes a ticket for the user whose token it is.
func (x *Sessions) Ticket(token string) (string, error) {
	who, until, err := x.person(token)
	if err != nil {
		return "", err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.id.now()
	maps.DeleteFunc(x.tickets, func(_ [sha256.Size]byte, c sessionClaims) bool { return !now.Before(c.Expires) })
	if len(x.tickets) >= maxTickets {
		return "", trainyard.Errorf(trainyard.CodeBusy, "%d tickets to log in wait to be used; try again in %s", maxTickets, TicketLife)
	}
	ticket := hex.EncodeToString(random(16))
	x.tickets[sha256.Sum256([]byte(ticket))] = sessionClaims{User: who, Expires: now.Add(TicketLife), Until: until}
	return ticket, nil
}

// Redeem takes a ticket for a session. A ticket is good once.
func (x *Sessions) Redeem(ticket string) (Session, error) {
	c, ok := x.take(ticket)
	if !ok || !x.id.now().Before(c.Expires) {
		return Session{}, unknown("this link to log in was used already, or is older than %s; ask for a new one, or log in with a token", TicketLife)
	}
	return x.begin(c.User, c.Until)
}

func (x *Sessions) take(ticket string) (sessionClaims, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	hash := sha256.Sum256([]byte(ticket))
	c, ok := x.tickets[hash]
	delete(x.tickets, hash)
	return c, ok
}

// Begin gives a session for a token.
func (x *Sessions) Begin(token string) (Session, error) {
	who, until, err := x.person(token)
	if err != nil {
		return Session{}, err
	}
	return x.begin(who, until)
}

// person is the user of a token, who must not be a job or a node: what runs has no business in a browser.
func (x *Sessions) person(token string) (trainyard.User, time.Time, error) {
	who, err := x.id.Check(token)
	if err != nil {
		return who, time.Time{}, err
	}
	if who.Job != "" || who.Node != "" || who.Role != trainyard.RoleAdmin && who.Role != trainyard.RoleReader {
		return who, time.Time{}, trainyard.Errorf(trainyard.CodeForbidden, "%s may not log in to these pages; use the token of a person", person(who))
	}
	c, err := x.id.verify(token)
	return who, time.Unix(c.Expires, 0), err
}

func (x *Sessions) begin(who trainyard.User, until time.Time) (Session, error) {
	end := x.id.now().Add(SessionLife)
	if until.Before(end) {
		end = until
	}
	body, err := json.Marshal(sessionClaims{User: who, Expires: end, ID: hex.EncodeToString(random(8))})
	if err != nil {
		return Session{}, err
	}
	text := base64.RawURLEncoding.EncodeToString(body)
	return Session{Value: text + "." + base64.RawURLEncoding.EncodeToString(x.sign(text)), User: who, Expires: end}, nil
}

func (x *Sessions) sign(text string) []byte {
	m := hmac.New(sha256.New, x.key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// Check says whose session it is. The error has CodeUnknown.
func (x *Sessions) Check(value string) (trainyard.User, error) {
	c, err := x.read(value)
	return c.User, err
}

func (x *Sessions) read(value string) (sessionClaims, error) {
	var c sessionClaims
	text, sum, _ := strings.Cut(value, ".")
	got, err := base64.RawURLEncoding.DecodeString(sum)
	if len(value) > maxToken || err != nil || !hmac.Equal(got, x.sign(text)) {
		return c, unknown("this browser's session was not made by this server; log in again")
	}
	body, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(body, &c) != nil {
		return sessionClaims{}, unknown("this browser's session is damaged; log in again")
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, over := x.ended[c.ID]; over || !x.id.now().Before(c.Expires) {
		return sessionClaims{}, unknown("this browser's session is over; log in again")
	}
	return c, nil
}

// End ends a session early. One that is no session is no error.
func (x *Sessions) End(value string) {
	c, err := x.read(value)
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.id.now()
	maps.DeleteFunc(x.ended, func(_ string, end time.Time) bool { return !now.Before(end) })
	x.ended[c.ID] = c.Expires
}
