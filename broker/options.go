package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"millrace/uns"

	"github.com/prometheus/client_golang/prometheus"
)

// Options is the config section `broker` and what the wiring adds.
type Options struct {
	// Address of the plain TCP listener.
	Address string `koanf:"address"`
	Limits  struct {
		MaxClients              int           `koanf:"maxClients"`
		ReceiveMaximum          int           `koanf:"receiveMaximum"`
		MaxPacketSize           int64         `koanf:"maxPacketSize"`
		ConnectTimeout          time.Duration `koanf:"connectTimeout"`
		MaxSubscriberQueue      int           `koanf:"maxSubscriberQueue"`
		MaxSubscriberQueueBytes int64         `koanf:"maxSubscriberQueueBytes"`
	} `koanf:"limits"`

	// LiveQoS is uns.liveMirror.qos: the highest QoS at which live values are delivered.
	LiveQoS   int                   `koanf:"-"`
	Namespace *uns.Namespace        `koanf:"-"`
	Now       func() time.Time      `koanf:"-"` // nil: time.Now
	Log       *slog.Logger          `koanf:"-"` // nil: nothing is logged
	Registry  prometheus.Registerer `koanf:"-"` // nil: a private registry
}

// DefaultOptions returns the values of contract section 2. Namespace is still to be set.
func DefaultOptions() Options {
	var o Options
	o.Address = ":1883"
	o.Limits.MaxClients = 5000
	o.Limits.ReceiveMaximum = 1000
	o.Limits.MaxPacketSize = 1 << 20
	o.Limits.ConnectTimeout = 5 * time.Second
	o.Limits.MaxSubscriberQueue = 10000
	o.Limits.MaxSubscriberQueueBytes = 16 << 20
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
	if o.Address == "" {
		faults = append(faults, errors.New(`broker.address: "" is no address; give host:port, or :1883 for every interface`))
	}
	l := &o.Limits
	bound("broker.limits.maxClients", int64(l.MaxClients), 1, 1_000_000)
	bound("broker.limits.receiveMaximum", int64(l.ReceiveMaximum), 1, 65535)
	bound("broker.limits.maxPacketSize", l.MaxPacketSize, 1024, maxPacketSize)
	if l.ConnectTimeout < 10*time.Millisecond || l.ConnectTimeout > time.Hour {
		faults = append(faults, fmt.Errorf("broker.limits.connectTimeout: %s is not between 10ms and 1h", l.ConnectTimeout))
	}
	bound("broker.limits.maxSubscriberQueue", int64(l.MaxSubscriberQueue), 1, 10_000_000)
	bound("broker.limits.maxSubscriberQueueBytes", l.MaxSubscriberQueueBytes, 1024, 1<<40)
	bound("uns.liveMirror.qos", int64(o.LiveQoS), 0, 2)
	return errors.Join(faults...)
}
