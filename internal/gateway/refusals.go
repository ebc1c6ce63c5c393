package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/trainyard/trainyard"
)

// The answers of a deployment that the gateway gives itself. Managed and Kubernetes endpoints have different codes for some of them:
// https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints#http-status-codes

func notFound(message string) *refusal {
	return refuse(http.StatusNotFound, "NotFound", message)
}

func (d *deployment) status(managed, kubernetes int) int {
	if d.route.Load().Kubernetes {
		return kubernetes
	}
	return managed
}

func (d *deployment) title() string { return fmt.Sprintf("%s/%s", d.endpoint, d.name) }

func (d *deployment) tooMany(route *trainyard.DeploymentRoute, why string) *refusal {
	return &refusal{
		status: d.status(http.StatusTooManyRequests, http.StatusServiceUnavailable), code: "TooManyRequests",
		message: fmt.Sprintf("%s: %s; try again later, or give the deployment more instances", d.title(), why), retry: time.Second,
	}
}

func (d *deployment) cannotCome(route *trainyard.DeploymentRoute) *refusal {
	return refuse(d.status(http.StatusFailedDependency, http.StatusServiceUnavailable), "NoReplica",
		fmt.Sprintf("%s has no replica and none can come: %s", d.title(), route.Failed))
}

func (d *deployment) waitedTooLong(c *claim, route *trainyard.DeploymentRoute) *refusal {
	switch {
	case c.tries > 0:
		return refuse(d.status(http.StatusRequestTimeout, http.StatusGatewayTimeout), "Timeout",
			fmt.Sprintf("%s: %d replicas could not be reached within the request timeout of %s, the last because %v",
				d.title(), c.tries, orDefault(route.Timeout, defaultTimeout), c.last))
	case c.held:
		waited := orDefault(route.Timeout, defaultTimeout)
		if route.Wakes {
			waited = orDefault(route.Hold, defaultHold)
		}
		return &refusal{status: http.StatusServiceUnavailable, code: "NoReplica", retry: time.Second,
			message: fmt.Sprintf("%s: no replica was ready within %s: %s", d.title(), waited, d.progress())}
	}
	return d.tooMany(route, fmt.Sprintf("no replica was free within the longest wait of %s", route.Queue))
}

func (d *deployment) timedOut() *refusal {
	return refuse(d.status(http.StatusRequestTimeout, http.StatusGatewayTimeout), "Timeout",
		fmt.Sprintf("%s did not answer within its request timeout of %s", d.title(), d.timeout()))
}

// lost is for a request that cannot be sent again.
func (d *deployment) lost(why string, err error) *refusal {
	return refuse(d.status(http.StatusFailedDependency, http.StatusBadGateway), "ReplicaLost",
		fmt.Sprintf("the replica of %s that had the request was lost (%v), and the request was not sent to another because %s", d.title(), err, why))
}

// unreadable is for an answer that is not HTTP.
func (d *deployment) unreadable(err error) *refusal {
	return refuse(d.status(http.StatusFailedDependency, http.StatusBadGateway), "BadAnswer",
		fmt.Sprintf("%s answered with something that is not HTTP/1.1: %v", d.title(), err))
}

var errClientGone = errors.New("the client went away")
