package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// page is the part of the page that is about models that are served.
func (s *serving) page() string {
	var b strings.Builder
	b.WriteString("\n## Serving models\n")
	for i, words := range s.leftOut {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "- Left out: %s.\n", words)
	}
	s.pageWays(&b)
	s.pageStarts(&b)
	if len(s.idle) > 0 {
		b.WriteString("\n### Endpoints that nobody calls\n\nOne endpoint and its deployment were made as any are, and the deployment went to zero by itself. The others are copies of their rows\n" +
			"in the database; the server then started anew on it, and the last of them was asked.\n\n| what | measured | what limits it |\n| --- | --- | --- |\n")
		for _, r := range s.idle {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", r.what, r.measured, r.limits)
		}
	}
	return b.String()
}

func (s *serving) pageWays(b *strings.Builder) {
	if len(s.ways) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### The gateway beside nginx\n\nSmall POST requests by wrk to the same replica, straight and through each proxy in turn, medians of %d rounds. The replica is one of a\n"+
		"deployment, and in the place of Python a program that answers at once, so that what is measured is the proxy. The gateway checks a key, divides\n"+
		"the traffic 90 to 10 among two deployments, each with a replica, and counts; nginx is a plain reverse proxy with kept connections and no log, and\n"+
		"sends to the first replica, as Go's does. wrk, the proxy and the replicas share the %d processors of this machine, so that what one uses the\n"+
		"others lack. Budget: at least 0.5 of nginx's requests/s, aim 0.8.\n\n", speedRounds, runtime.NumCPU())
	fmt.Fprintf(b, "| way | requests/s, %[1]d connections | ÷ nginx | p50, p99 at %[1]d | processor time of the proxy, a request | added by the proxy on 1 connection, p50, p99 |\n| --- | --- | --- | --- | --- | --- |\n", manyClients)
	for _, r := range s.ways {
		share, processor, added := "", "", ""
		if r.share > 0 {
			share = fmt.Sprintf("%.2f", r.share)
		}
		if !r.alone {
			processor, added = fine(r.processor), fine(r.more50)+", "+fine(r.more)
		}
		fmt.Fprintf(b, "| %s | %.0f | %s | %s, %s | %s | %s |\n", r.name, r.rate, share, fine(r.p50), fine(r.p99), processor, added)
	}
}

func (s *serving) pageStarts(b *strings.Builder) {
	if len(s.starts) == 0 {
		return
	}
	b.WriteString("\n### Cold start\n\nA random forest of scikit-learn, trained by a job here, behind a scoring script under the Azure inference server, on a managed deployment that goes to zero.\n" +
		"The request is held until the replica is ready. For the first replica the time is to its being ready; uv had scikit-learn in its cache, of the\n" +
		"training's environment, and not the inference server.\n\n| part |")
	rule := "| --- |"
	for _, r := range s.starts {
		fmt.Fprintf(b, " %s |", r.name)
		rule += " --- |"
	}
	b.WriteString("\n" + rule + "\n")
	for _, name := range partNames(s.starts) {
		if took(s.starts, name) == 0 {
			continue // it went by within the parts beside it
		}
		fmt.Fprintf(b, "| %s |", name)
		for _, r := range s.starts {
			text := "–"
			for _, p := range r.parts {
				if p.name == name {
					text = ms(p.took)
				}
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteString("\n")
	}
	b.WriteString("| **all** |")
	for _, r := range s.starts {
		fmt.Fprintf(b, " **%s** |", ms(r.whole.Round(time.Millisecond/10)))
	}
	b.WriteString("\n")
}

// took is the time of a part in all starts.
func took(rows []coldRow, name string) time.Duration {
	var sum time.Duration
	for _, r := range rows {
		for _, p := range r.parts {
			if p.name == name {
				sum += p.took
			}
		}
	}
	return sum
}

// partNames are the names of the parts in their order, those of the first start first where they are not shared.
func partNames(rows []coldRow) []string {
	var names []string
	seen := map[string]bool{}
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r.parts))
	}
	for i := range longest {
		for _, r := range rows {
			if i < len(r.parts) && !seen[r.parts[i].name] {
				seen[r.parts[i].name] = true
				names = append(names, r.parts[i].name)
			}
		}
	}
	return names
}
