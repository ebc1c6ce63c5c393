package main

import (
	"math/rand/v2"
	"strings"
)

// Names of jobs that were given none: an adjective, a noun and ten letters, as Azure ML makes them, so that a person can say one and no
// two are alike.
const (
	adjectives = "amber brave bright brisk calm careful clever copper coral cosy crisp curious eager early fair fast fleet gentle glad golden " +
		"good grand great green happy hardy honest humble ivory jade jolly keen kind late lively lucky mellow merry mild modest neat nimble " +
		"noble orange patient plain plucky polite proud quick quiet ready rosy royal silent silver simple sleek smart snowy solid spry steady " +
		"still stout strong sunny sweet swift tidy tranquil true upbeat violet warm wise witty young zesty"
	nouns = "anchor apple badger bagel barley basil beach beacon bear birch bird bison boat bread bridge brook cactus canyon carrot castle " +
		"cedar cherry cloud clover comet cork crane creek cricket crown dawn deer dove drum eagle elm engine falcon feather fern field finch " +
		"fig flame flower forest fox garden goose grape harbor hawk hill holly island jar kettle kite lake lamp lantern leaf lemon lily lion " +
		"loom maple meadow mill moon moss oak oasis olive onion otter owl palm parrot peach pear pebble pine planet plum pond poplar rabbit " +
		"rain raven reed river robin rocket rose sail salmon sky snail spruce star stone store stork sun tent thistle tide tiger train tree " +
		"tulip valley wheel whale willow wind wolf wren yard"
	letters = "0123456789abcdefghijklmnopqrstuvwxyz"
)

func newJobName() string {
	pick := func(list string) string {
		words := strings.Fields(list)
		return words[rand.IntN(len(words))]
	}
	tail := make([]byte, 10)
	for i := range tail {
		tail[i] = letters[rand.IntN(len(letters))]
	}
	return pick(adjectives) + "_" + pick(nouns) + "_" + string(tail)
}
