package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"millrace/uns"

	"github.com/prometheus/client_golang/prometheus"
)

// Options is the config section `broker` and what the wiring adds.
type Options struct {
	// Address of the plain TCP listener; "" = none.
	Address string `koanf:"address"`
	// TLS is a listener for TLS 1.2 and 1.3. ClientCAFile "" = clients need no certificate.
	TLS struct {
		Address      string `koanf:"address"`
		CertFile     string `koanf:"certFile"`
		KeyFile      string `koanf:"keyFile"`
		ClientCAFile string `koanf:"clientCAFile"`
	} `koanf:"tls"`
	// WebSocket takes the streams that somebody hands over with TakeStream.
	WebSocket bool `koanf:"websocket"`
	// Profile is "" or ProfileConformance.
	Profile string `koanf:"profile"`
	Limits  struct {
		MaxClients              int           `koanf:"maxClients"`
		ReceiveMaximum          int           `koanf:"receiveMaximum"`
		MaxPacketSize           int64         `koanf:"maxPacketSize"`
		ConnectTimeout          time.Duration `koanf:"connectTimeout"`
		MaxSubscriberQueue      int           `koanf:"maxSubscriberQueue"`
		MaxSubscriberQueueBytes int64         `koanf:"maxSubscriberQueueBytes"`
		MaxSessionExpiry        time.Duration `koanf:"maxSessionExpiry"`
		// ConnectRatePerSec is how many connections a second each listener takes, with a burst of one second; 0 = any.
		ConnectRatePerSec int `koanf:"connectRatePerSec"`
		// FlappingLimit is how many take-overs and protocol errors of one client identifier begin a ban; 0 = any.
		FlappingLimit PerMinute `koanf:"flappingLimit"`
		// SignInFailures is how many failed sign-ins from one address as one client begin a ban; 0 = any.
		SignInFailures PerMinute `koanf:"signInFailures"`
	} `koanf:"limits"`

	// ServerKeepAlive is imposed on MQTT 5 clients that ask for more, or for none; 0: theirs holds [MQTT-3.2.2-21].
	ServerKeepAlive time.Duration `koanf:"-"`
	// Version is what $SYS/broker/version says.
	Version string `koanf:"-"`
	// LiveQoS is uns.liveMirror.qos: the highest QoS at which live values are delivered.
	LiveQoS int `koanf:"-"`
	// Values are what new subscribers to stored topics get as retained messages; nil: nothing.
	Values    Values                `koanf:"-"`
	Namespace *uns.Namespace        `koanf:"-"`
	Now       func() time.Time      `koanf:"-"` // nil: time.Now
	Log       *slog.Logger          `koanf:"-"` // nil: nothing is logged
	Registry  prometheus.Registerer `koanf:"-"` // nil: a private registry
}

// PerMinute is a number of events in a minute.
type PerMinute int

// String writes it as config.yaml does.
func (n PerMinute) String() string { return fmt.Sprintf("%d/min", int(n)) }

// DefaultOptions returns the values of contract section 2. Namespace is still to be set.
func DefaultOptions() Options {
	var o Options
	o.Address = ":1883"
	o.WebSocket = true
	o.Limits.MaxClients = 5000
	o.Limits.ReceiveMaximum = 1000
	o.Limits.MaxPacketSize = 1 << 20
	o.Limits.ConnectTimeout = 5 * time.Second
	o.Limits.MaxSubscriberQueue = 10000
	o.Limits.MaxSubscriberQueueBytes = 16 << 20
	o.Limits.MaxSessionExpiry = 24 * time.Hour
	o.Limits.ConnectRatePerSec = 1000
	o.Limits.FlappingLimit = 15
	o.Limits.SignInFailures = 60
	o.LiveQoS = 1
	return o
}

// Bounds that are not for the operator to move.
const (
	topicAliasMaximum = 64        // announced to MQTT 5 clients
	maxConnectPacket  = 64 << 10  // a CONNECT, before anybody has signed in
	maxPacketSize     = 268435455 // what MQTT can express
)

// Validate reports every fault at once.
func (o *Options) Validate() error {
	var faults []error
	bound := func(key string, v, lo, hi int64) {
		if v < lo {
			faults = append(faults, fmt.Errorf("%s: %d is below %d", key, v, lo))
		}
		if v > hi {
			faults = append(faults, fmt.Errorf("%s: %d is above %d", key, v, hi))
		}
	}
	faults = append(faults, o.doors()...)
	faults = append(faults, o.profileFaults()...)
	l := &o.Limits
	bound("broker.limits.maxClients", int64(l.MaxClients), 1, 1_000_000)
	bound("broker.limits.receiveMaximum", int64(l.ReceiveMaximum), 1, 65535)
	bound("broker.limits.maxPacketSize", l.MaxPacketSize, 1024, maxPacketSize)
	if l.ConnectTimeout < 10*time.Millisecond || l.ConnectTimeout > time.Hour {
		faults = append(faults, fmt.Errorf("broker.limits.connectTimeout: %s is not between 10ms and 1h", l.ConnectTimeout))
	}
	if l.MaxSessionExpiry < 0 || l.MaxSessionExpiry > math.MaxUint32*time.Second {
		faults = append(faults, fmt.Errorf("broker.limits.maxSessionExpiry: %s is not between 0s and 49710d", l.MaxSessionExpiry))
	}
	bound("broker.limits.maxSubscriberQueue", int64(l.MaxSubscriberQueue), 1, 10_000_000)
	bound("broker.limits.maxSubscriberQueueBytes", l.MaxSubscriberQueueBytes, 1024, 1<<40)
	bound("broker.limits.connectRatePerSec", int64(l.ConnectRatePerSec), 0, 1_000_000)
	bound("broker.limits.flappingLimit", int64(l.FlappingLimit), 0, 1_000_000)
	bound("broker.limits.signInFailures", int64(l.SignInFailures), 0, 1_000_000)
	bound("uns.liveMirror.qos", int64(o.LiveQoS), 0, 2)
	return errors.Join(faults...)
}

// doors checks the listeners.
func (o *Options) doors() (faults []error) {
	t := &o.TLS
	if o.Address == "" && t.Address == "" {
		faults = append(faults, errors.New(`broker.address: "" is no address and broker.tls.address is empty too; give host:port, or :1883 for every interface`))
	}
	for _, file := range []struct{ key, name string }{{"certFile", t.CertFile}, {"keyFile", t.KeyFile}} {
		if t.Address != "" && file.name == "" {
			faults = append(faults, fmt.Errorf("broker.tls.%s: empty while broker.tls.address is %s; name a PEM file", file.key, t.Address))
		}
	}
	for _, file := range []struct{ key, name string }{{"certFile", t.CertFile}, {"keyFile", t.KeyFile}, {"clientCAFile", t.ClientCAFile}} {
		if t.Address == "" && file.name != "" {
			faults = append(faults, fmt.Errorf("broker.tls.%s: %s, but broker.tls.address is empty and nothing would use it; set the address, such as :8883", file.key, file.name))
		}
	}
	return faults
}
