package auth

import "slices"

// Role of a person, each including those before it. The empty Role is an API client's: its grants decide, no role does.
type Role string

// The roles, least first.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleDesigner Role = "designer"
	RoleAdmin    Role = "admin"
)

// roles in rising order.
var roles = []Role{RoleViewer, RoleOperator, RoleDesigner, RoleAdmin}

// Allows reports whether r includes need. An unknown role allows nothing and is allowed to nobody.
func (r Role) Allows(need Role) bool {
	have, want := slices.Index(roles, r), slices.Index(roles, need)
	return want >= 0 && have >= want
}

func (r Role) known() bool { return slices.Contains(roles, r) }

// atMost is the lesser of two roles; an unknown one is the least.
func (r Role) atMost(bound Role) Role {
	if slices.Index(roles, r) > slices.Index(roles, bound) {
		return bound
	}
	return r
}

// Caller is who makes a REST call. Principal is nil for people and the admin socket.
type Caller struct {
	Name      string
	Role      Role // of people; "" with a token that reads the metrics only
	Principal *Principal
	Metrics   bool // may read /metrics

	User    string // the person's user name; "" for a token that belongs to no user
	Token   string // id of the personal access token the call came with
	Session bool   // the call came with the cookie of a session
}

// Allows reports whether the caller is a person whose role includes need.
func (c Caller) Allows(need Role) bool { return c.Principal == nil && c.Role.Allows(need) }
