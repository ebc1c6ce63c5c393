package control

import (
	"context"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// tokenLife is how long a token for calling an endpoint is good.
const tokenLife = time.Hour

// EndpointToken makes a token with which the endpoint can be called for an hour.
func (c *Control) EndpointToken(_ context.Context, who trainyard.User, scope trainyard.Scope, name string) (trainyard.EndpointToken, error) {
	e := c.served.endpoint(name)
	if e == nil || e.Scope.Fold() != scope.Fold() {
		return trainyard.EndpointToken{}, noEndpoint(scope, name)
	}
	if e.Spec.AuthMode == trainyard.AuthKey {
		return trainyard.EndpointToken{}, trainyard.Conflict("endpoint %q is called with keys (auth_mode key), not with tokens; ask for its keys", e.Name)
	}
	caller := trainyard.User{Name: who.Name + " for endpoint " + e.Name, Role: trainyard.RoleCaller, Scope: e.Scope, Endpoint: e.Name, Epoch: e.Epoch}
	token, err := c.Tokens.Mint(caller, "endpoint", tokenLife)
	now := c.Now()
	return trainyard.EndpointToken{AccessToken: token, TokenType: "Bearer", ExpiryTime: now.Add(tokenLife).Unix(), RefreshAfter: now.Add(tokenLife / 2).Unix()}, err
}

// CheckToken says until when a token that was sent to an endpoint may be taken as good without asking again. A user of the workspace calls
// its endpoints with the token that the user has; so does a job of it, while it lives. No endpoint stands for the whole server: what tells
// of all workspaces.
func (c *Control) CheckToken(ctx context.Context, endpoint, token string) (time.Time, error) {
	if endpoint == "" {
		return c.checkWhole(token)
	}
	e := c.served.endpoint(endpoint)
	if e == nil {
		return time.Time{}, trainyard.NotFound("online endpoint %q does not exist", endpoint)
	}
	who, err := c.Tokens.Check(token)
	if err == nil && who.Role == trainyard.RoleJob {
		err = c.JobLives(ctx, who)
	}
	if err != nil {
		return time.Time{}, err
	}
	good := who.Role == trainyard.RoleAdmin || who.Role == trainyard.RoleReader || who.Role == trainyard.RoleJob
	if good && who.Scope != (trainyard.Scope{}) {
		good = who.Scope.Fold() == e.Scope.Fold()
	}
	if who.Role == trainyard.RoleCaller {
		good = strings.EqualFold(who.Endpoint, e.Name) && who.Scope.Fold() == e.Scope.Fold()
	}
	if !good {
		return time.Time{}, trainyard.Errorf(trainyard.CodeForbidden, "this token is not one for endpoint %q", e.Name)
	}
	if who.Role == trainyard.RoleCaller && who.Epoch != e.Epoch {
		return time.Time{}, trainyard.Errorf(trainyard.CodeUnknown, "this token was made before the keys of endpoint %q were replaced; get a new one", e.Name)
	}
	return c.Now().Add(goodFor), nil
}

// goodFor is how long a gateway may take a token as good without asking again.
const goodFor = time.Minute

func (c *Control) checkWhole(token string) (time.Time, error) {
	who, err := c.Tokens.Check(token)
	if err != nil {
		return time.Time{}, err
	}
	if who.Scope != (trainyard.Scope{}) || who.Role != trainyard.RoleAdmin && who.Role != trainyard.RoleReader {
		return time.Time{}, trainyard.Errorf(trainyard.CodeForbidden, "this token is not one for the whole server")
	}
	return c.Now().Add(goodFor), nil
}
