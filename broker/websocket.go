package broker

import "net"

// Subprotocols are the WebSocket subprotocols whose streams are taken: mqtt [MQTT-6.0.0-3], and the name that clients of
// MQTT 3.1 still use.
func Subprotocols() []string { return []string{"mqtt", "mqttv3.1"} }

// MaxMessage is how large a WebSocket message may be, in bytes. A client may put several packets into one; a message is
// never held as a whole, so the bound on memory stays that on packets.
func (o *Options) MaxMessage() int64 { return max(4*o.Limits.MaxPacketSize, 1<<20) }

// Welcome says whether one more stream is taken now. Who asks can refuse it before it exists. A yes counts
// towards connectRatePerSec.
func (b *Broker) Welcome() bool {
	l := b.listener
	d := l.doors[doorStream]
	switch {
	case d == nil || !l.takes():
		b.atDoors.turnedFull.Inc()
		return false
	case d.knock(b.now()) != knockEnter:
		b.atDoors.turnedTooFast.Inc()
		return false
	}
	return true
}

// TakeStream runs a connection that somebody else has accepted, as if it had come through a door of ours; the bytes in it
// are MQTT. It returns at once and closes the connection when it is over. With broker.websocket off, before Serve and after
// its end the connection is closed right away.
func (b *Broker) TakeStream(raw net.Conn) {
	l := b.listener
	if d := l.doors[doorStream]; d != nil && l.takes() {
		if c := l.register(raw, d); c != nil {
			go l.run(c)
			return
		}
	}
	b.atDoors.turnedFull.Inc()
	_ = raw.Close()
}
