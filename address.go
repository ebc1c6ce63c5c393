package trainyard

import (
	"net"
	"net/url"
	"strings"
)

// CheckServerURL refuses what cannot be the URL at which agents and tasks reach a server: it is https://HOST:PORT, or http where HOST is this
// computer. The error is for people and has CodeInvalid.
func CheckServerURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "":
		return Invalid("%q is not the URL of a server: want https://HOST:PORT", s)
	case u.Scheme == "http" && !Loopback(u.Hostname()):
		return Invalid("%q would send tokens and data in the clear: use https, or http on loopback", s)
	}
	return nil
}

// Loopback says whether host, a name or an address without a port, is always the computer that asks.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
