// Package studio drives the pages of a real server with a real browser, Chromium, and looks for what a person looks for. It is a module of
// its own, because nothing else needs the library that speaks to the browser. TRAINYARD names the program that is tested;
// ../../bin/trainyard if it is not set.
package studio
