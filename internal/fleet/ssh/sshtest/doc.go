// Package sshtest makes real SSH machines for tests: each is a network, mount, process and host name namespace of its own with a real sshd,
// a user, a home folder and a cable that can be pulled. They need root, openssh-server and iproute2, and share the kernel, the programs
// and, if asked for, the cgroups of this computer. Everything is gone after the test, however it ends: the namespaces die with their
// first process, which dies with the test's.
package sshtest

// Require, set to 1 in the environment, makes what is missing for the machines a failure: nothing is to be skipped then.
const Require = "TRAINYARD_REQUIRE_ENGINES"

// Install is the command that installs what the machines need on Debian.
const Install = "apt-get install openssh-server iproute2"
