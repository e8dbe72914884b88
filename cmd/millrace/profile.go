package main

import (
	"fmt"
	"strings"

	"millrace/broker"
)

// stayOnLoopback keeps listeners that name no host to this machine while everybody is let in.
func (c *Config) stayOnLoopback() {
	if c.Broker.Profile != broker.ProfileConformance {
		return
	}
	for _, address := range []*string{&c.Broker.Address, &c.Broker.TLS.Address, &c.Web.Address} {
		if strings.HasPrefix(*address, ":") {
			*address = "127.0.0.1" + *address
		}
	}
}

// guestFault is that of the web listener, through which WebSocket clients come in; the broker looks after its own.
func (c *Config) guestFault() error {
	if c.Broker.Profile == broker.ProfileConformance && !broker.Loopback(c.Web.Address) {
		return fmt.Errorf("web.address: %s is no loopback address, and broker.profile: conformance lets everybody in; use 127.0.0.1:8080, or leave the profile empty", c.Web.Address)
	}
	return nil
}

// warnings are what /readyz and the status say for as long as the box runs.
func (c *Config) warnings() []string {
	if c.Broker.Profile == broker.ProfileConformance {
		return []string{"broker.profile is conformance: everybody on this machine is let in, for public test suites only"}
	}
	return nil
}
