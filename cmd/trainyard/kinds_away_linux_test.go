package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// away kills the lab's server, has every replica answer by itself meanwhile, and starts the server again: the same replicas serve on.
func (s *servedLab) away(t *testing.T, plain string, held func(p *servePlace)) {
	before := map[*servePlace]map[string]string{}
	urls, keys := map[*servePlace]string{}, map[*servePlace]string{}
	for _, p := range s.places {
		p.lab = s.lab.in(t)
		if p.lacks["serve"] != "" || len(p.replicas()) == 0 {
			continue
		}
		before[p] = p.replicas()
		urls[p], keys[p] = p.door(p.endpoint())
	}
	s.lab.kill()
	good := map[*servePlace]bool{}
	for p, replicas := range before {
		good[p] = t.Run("away/"+p.name, func(t *testing.T) {
			for _, address := range replicas {
				if got := p.ask(p.in(t), address, request(t)); got != "" {
					p.in(t).same(got, plain)
				}
			}
		})
	}
	s.lab.start()
	for p, replicas := range before {
		good[p] = t.Run("back/"+p.name, func(t *testing.T) {
			p.lab = s.lab.in(t)
			p.wait("the endpoint answers again", func() bool {
				status, text := post(t, urls[p], keys[p], request(t))
				if status == http.StatusOK {
					p.same(text, plain)
				}
				return status == http.StatusOK
			})
			p.wait("the replica is known again", func() bool { return len(p.replicas()) > 0 })
			if now := p.replicas(); !maps.Equal(now, replicas) {
				t.Errorf("replicas %v came after %v", now, replicas)
			}
		}) && good[p]
		if good[p] {
			held(p)
		}
	}
}

// The lines of docs/serving.md between which the table is.
const tableBegins, tableEnds = "<!-- the table: made by make serving -->\n", "<!-- the table ends -->\n"

// writeServing writes docs/serving.md with the table of this run.
func writeServing(t *testing.T, path string, labs []*servedLab, results map[string]map[string]string) {
	t.Helper()
	page := readText(t, "../../docs/serving.md")
	before, rest, ok := strings.Cut(page, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		t.Fatal("docs/serving.md has lost the lines around its table")
	}
	if err := os.WriteFile(path, []byte(before+tableBegins+servingTable(labs, results)+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func servingTable(labs []*servedLab, results map[string]map[string]string) string {
	var b strings.Builder
	var places []*servePlace
	for _, s := range labs {
		places = append(places, s.places...)
	}
	b.WriteString("\n|  |")
	for _, p := range places {
		b.WriteString(" " + p.name + " |")
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(places)) + "\n")
	var notes []string
	row := func(name, doc string) {
		fmt.Fprintf(&b, "| **%s**: %s |", name, doc)
		for _, p := range places {
			r := results[p.name][name]
			if r != "✓" && r != "fails" {
				i := slices.Index(notes, r)
				if i < 0 {
					notes, i = append(notes, r), len(notes)
				}
				r = fmt.Sprintf("– (%d)", i+1)
			}
			b.WriteString(" " + r + " |")
		}
		b.WriteString("\n")
	}
	for _, c := range serveChecks {
		row(c.name, c.doc)
	}
	row("away", "the server is killed with -9: the replica goes on, answers at its own address (not asked on Kubernetes), and is taken up again as it is")
	b.WriteString("\n")
	for i, n := range notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, n)
	}
	return b.String()
}
