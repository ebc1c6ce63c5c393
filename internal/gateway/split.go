package gateway

import (
	"maps"
	"slices"
)

// rotation spreads names by weight: a sequence as long as the sum of the weights, in which every name stands exactly as often as its
// weight says, as evenly as it goes. Who walks it round and round gives each name its exact share in every window of that length.
// rest is the weight of "", which means nobody. (Smooth weighted round-robin, as in nginx.)
func rotation(weights map[string]int, rest int) []string {
	names := slices.Sorted(maps.Keys(weights))
	weigh := make([]int, 0, len(names)+1)
	total := 0
	for _, n := range names {
		w := max(0, weights[n])
		weigh = append(weigh, w)
		total += w
	}
	if rest > 0 {
		names, weigh = append(names, ""), append(weigh, rest)
		total += rest
	}
	credit := make([]int, len(names))
	turns := make([]string, 0, total)
	for range total {
		best := 0
		for i := range names {
			credit[i] += weigh[i]
			if credit[i] > credit[best] {
				best = i
			}
		}
		credit[best] -= total
		turns = append(turns, names[best])
	}
	return turns
}

// mirrorRotation is whom each of a hundred calls in a row is copied to; "" for those that are not copied.
func mirrorRotation(percent map[string]int) []string {
	sum := 0
	for _, p := range percent {
		sum += max(0, p)
	}
	if sum == 0 {
		return nil
	}
	return rotation(percent, max(0, 100-sum))
}
