package broker

import (
	"fmt"
	"net"
	"time"

	"millrace/auth"
)

// ProfileConformance is the profile for public test suites, which know no API clients: whoever connects is let in and may use
// every ordinary topic but test/nosubscribe, which nobody may subscribe to; the keep-alive is at most 60 s; nobody is banned.
// It is for loopback only.
const ProfileConformance = "conformance"

// The API client that everybody is under the conformance profile. No client on record can have this id.
const guestID = "(conformance)"

// profileKeepAlive is what public suites expect as the Server Keep Alive.
const profileKeepAlive = 60 * time.Second

// profileFaults are those of Options.Profile. Everybody is let in, so nobody may come from elsewhere.
func (o *Options) profileFaults() (faults []error) {
	switch o.Profile {
	case "":
		return nil
	case ProfileConformance:
	default:
		return []error{fmt.Errorf("broker.profile: %q is unknown; leave it empty, or conformance for public test suites", o.Profile)}
	}
	for _, at := range []struct{ key, address string }{{"broker.address", o.Address}, {"broker.tls.address", o.TLS.Address}} {
		if at.address != "" && !Loopback(at.address) {
			faults = append(faults, fmt.Errorf("%s: %s is no loopback address, and broker.profile: conformance lets everybody in; "+
				"use 127.0.0.1:1883, or leave the profile empty", at.key, at.address))
		}
	}
	return faults
}

// Loopback says whether a listener at host:port can be reached from this machine only.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// applyProfile changes o and who may sign in as the profile says.
func applyProfile(o *Options, users SignIn) SignIn {
	if o.Profile != ProfileConformance {
		return users
	}
	o.ServerKeepAlive = profileKeepAlive
	o.Limits.FlappingLimit, o.Limits.SignInFailures = 0, 0
	o.Log.Warn("broker.profile is conformance: everybody is let in and may use every ordinary topic; for public test suites only", "part", "broker")
	both := []auth.Action{auth.ActionPublish, auth.ActionSubscribe}
	return &guests{SignIn: users, guest: auth.Guest(guestID, o.Namespace.Default(), []auth.Grant{
		{Effect: "allow", Actions: both, Filter: "#", Scope: auth.ScopeMQTT},
		{Effect: "deny", Actions: []auth.Action{auth.ActionSubscribe}, Filter: "test/nosubscribe", Scope: auth.ScopeMQTT},
	})}
}

// guests lets everybody in. Who signs in as an API client with the right secret is that client all the same.
type guests struct {
	SignIn
	guest *auth.Principal
}

func (g *guests) AdmitFrom(address, id string, password []byte) (p *auth.Principal, until time.Time, ok bool) {
	if id != "" && len(password) > 0 {
		if p, until, ok = g.SignIn.AdmitFrom(address, id, password); ok {
			return p, until, true
		}
	}
	return g.guest, time.Time{}, true
}

func (g *guests) Certified(id string) (*auth.Principal, bool) {
	if id == guestID {
		return g.guest, true
	}
	return g.SignIn.Certified(id)
}
