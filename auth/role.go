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

// Caller is who makes a REST call. Principal is nil for people and the admin socket.
type Caller struct {
	Name      string
	Role      Role // of people
	Principal *Principal
	Metrics   bool // may read /metrics
}

// Allows reports whether the caller is a person whose role includes need.
func (c Caller) Allows(need Role) bool { return c.Principal == nil && c.Role.Allows(need) }
