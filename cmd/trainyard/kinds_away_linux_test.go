package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
)

// away kills the lab's server, has every replica answer by itself meanwhile, and starts the server again: the same replicas serve on.
func (s *servedLab) away(t *testing.T, held func(p *servePlace)) {
	before := map[*servePlace]map[string]string{}
	urls, keys := map[*servePlace]string{}, map[*servePlace]string{}
	for _, p := range s.places {
		p.lab = s.lab.in(t)
		if len(p.replicas()) == 0 {
			continue
		}
		before[p] = p.replicas()
		urls[p], keys[p] = p.door(p.endpoint())
	}
	s.lab.kill()
	good := map[*servePlace]bool{}
	for p, replicas := range before {
		good[p] = t.Run("away/"+p.title(), func(t *testing.T) {
			for _, address := range replicas {
				if got := p.ask(p.in(t), address, readText(t, p.model.request)); got != "" {
					p.in(t).same(got, p.plain)
				}
			}
		})
	}
	s.lab.start()
	for p, replicas := range before {
		good[p] = t.Run("back/"+p.title(), func(t *testing.T) {
			p.lab = s.lab.in(t)
			p.wait("the endpoint answers again", func() bool {
				status, text := post(t, urls[p], keys[p], readText(t, p.model.request))
				if status == http.StatusOK {
					p.same(text, p.plain)
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

const awayDoc = "the server is killed with -9: the replica goes on, answers at its own address (not asked on Kubernetes), and is taken up again as it is"

// mark is a line of docs/serving.md before or after the model's table.
func (m *servedModel) mark(where string) string {
	return "<!-- the table of " + m.name + where + " -->\n"
}

// writeServing writes docs/serving.md with the tables of this run. The table of a model that was left out stays as the page has it.
func writeServing(t *testing.T, path string, labs []*servedLab, results map[string]map[string]string) {
	t.Helper()
	page := readText(t, "../../docs/serving.md")
	for _, m := range []*servedModel{wine, torch, triton} {
		table := m.table(labs, results)
		if table == "" {
			continue
		}
		begins, ends := m.mark(": made by make serving"), m.mark(" ends")
		before, rest, ok := strings.Cut(page, begins)
		_, after, closed := strings.Cut(rest, ends)
		if !ok || !closed {
			t.Fatalf("docs/serving.md has lost the lines around the table of %s", m.name)
		}
		page = before + begins + table + ends + after
	}
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table has a column for every kind that was to serve the model, "" if none was.
func (m *servedModel) table(labs []*servedLab, results map[string]map[string]string) string {
	var names []string
	for _, s := range labs {
		for _, p := range s.places {
			if p.model == m {
				names = append(names, p.name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n|  | " + strings.Join(names, " | ") + " |\n| --- |" + strings.Repeat(" --- |", len(names)) + "\n")
	for _, c := range append(m.checks(), serveCheck{name: "away", doc: awayDoc}) {
		fmt.Fprintf(&b, "| **%s**: %s |", c.name, c.doc)
		for _, name := range names {
			b.WriteString(" " + results[name][m.name+" "+c.name] + " |")
		}
		b.WriteString("\n")
	}
	return b.String() + "\n"
}
