package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

var eve = trainyard.User{Name: "eve", Role: trainyard.RoleReader, Scope: trainyard.Scope{Subscription: "s", ResourceGroup: "g", Workspace: "Vision"}}

func mint(t *testing.T, s *identity.Service, who trainyard.User, life time.Duration) string {
	t.Helper()
	token, err := s.Mint(who, "", life)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestSessionIsTheUserOfItsToken(t *testing.T) {
	kept, c := &settings{}, &clock{start}
	s := service(t, kept, c)
	x := identity.NewSessions(s)
	got, err := x.Begin(mint(t, s, eve, 100*time.Hour))
	if err != nil || got.User != eve || !got.Expires.Equal(start.Add(identity.SessionLife)) {
		t.Fatalf("%+v, %v", got, err)
	}
	if who, err := x.Check(got.Value); err != nil || who != eve {
		t.Errorf("%+v, %v", who, err)
	}
	again := identity.NewSessions(service(t, kept, c))
	if who, err := again.Check(got.Value); err != nil || who != eve {
		t.Errorf("after a restart: %+v, %v", who, err)
	}
	if _, err := identity.NewSessions(service(t, &settings{}, c)).Check(got.Value); trainyard.CodeOf(err) != trainyard.CodeUnknown {
		t.Errorf("another server: %v", err)
	}
	c.t = start.Add(identity.SessionLife)
	if _, err := x.Check(got.Value); trainyard.CodeOf(err) != trainyard.CodeUnknown {
		t.Errorf("after its end: %v", err)
	}
}

func TestSessionEndsWithItsToken(t *testing.T) {
	c := &clock{start}
	s := service(t, &settings{}, c)
	x := identity.NewSessions(s)
	ticket, err := x.Ticket(mint(t, s, eve, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := x.Redeem(ticket); err != nil || !got.Expires.Equal(start.Add(time.Minute)) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTicketIsGoodOnceAndForAShortTime(t *testing.T) {
	c := &clock{start}
	s := service(t, &settings{}, c)
	x := identity.NewSessions(s)
	token := mint(t, s, eve, time.Hour)
	ticket, err := x.Ticket(token)
	if err != nil || strings.Contains(token, ticket) {
		t.Fatalf("%q, %v", ticket, err)
	}
	if got, err := x.Redeem(ticket); err != nil || got.User != eve {
		t.Errorf("%+v, %v", got, err)
	}
	late, err := x.Ticket(token)
	if err != nil {
		t.Fatal(err)
	}
	c.t = start.Add(identity.TicketLife)
	for name, bad := range map[string]string{"used": ticket, "late": late, "empty": "", "made up": strings.Repeat("0", 32)} {
		if _, err := x.Redeem(bad); trainyard.CodeOf(err) != trainyard.CodeUnknown {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTicketsAreBounded(t *testing.T) {
	c := &clock{start}
	s := service(t, &settings{}, c)
	x := identity.NewSessions(s)
	token := mint(t, s, eve, time.Hour)
	var err error
	for range 1001 {
		_, err = x.Ticket(token)
	}
	if trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("%v", err)
	}
	c.t = start.Add(identity.TicketLife)
	if _, err := x.Ticket(token); err != nil {
		t.Errorf("when they are forgotten: %v", err)
	}
}

func TestSessionsAreForPeople(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	x := identity.NewSessions(s)
	for name, who := range map[string]trainyard.User{
		"a job": {Name: "j", Role: trainyard.RoleJob, Job: "j"}, "a node": {Name: "n", Role: trainyard.RoleAgent, Node: "n"},
		"a job by its role": {Name: "j", Role: trainyard.RoleJob}, "a job that is an admin": {Name: "j", Role: trainyard.RoleAdmin, Job: "j"},
	} {
		token := mint(t, s, who, time.Hour)
		if _, err := x.Ticket(token); trainyard.CodeOf(err) != trainyard.CodeForbidden {
			t.Errorf("a ticket for %s: %v", name, err)
		}
		if _, err := x.Begin(token); trainyard.CodeOf(err) != trainyard.CodeForbidden {
			t.Errorf("a session for %s: %v", name, err)
		}
	}
}

func TestSessionsAndTokensAreNotTheSame(t *testing.T) {
	s := service(t, &settings{}, &clock{start})
	x := identity.NewSessions(s)
	token := mint(t, s, eve, time.Hour)
	got, err := x.Begin(token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(got.Value); err == nil {
		t.Error("a session is a token")
	}
	text, sum, _ := strings.Cut(got.Value, ".")
	for name, bad := range map[string]string{"a token": token, "nothing": "", "a dot": ".", "no signature": text, "another's signature": text + "." + sum[1:], "more": "A" + got.Value,
		"very much": strings.Repeat("A", 1<<20) + "." + sum} {
		if _, err := x.Check(bad); trainyard.CodeOf(err) != trainyard.CodeUnknown {
			t.Errorf("%s: %v", name, err)
		}
		x.End(bad)
	}
	if _, err := x.Check(got.Value); err != nil {
		t.Errorf("%v", err)
	}
	other, err := x.Begin(token)
	if err != nil {
		t.Fatal(err)
	}
	x.End(got.Value)
	if _, err := x.Check(got.Value); trainyard.CodeOf(err) != trainyard.CodeUnknown {
		t.Errorf("after its end: %v", err)
	}
	if _, err := x.Check(other.Value); err != nil {
		t.Errorf("another session of the user: %v", err)
	}
}
