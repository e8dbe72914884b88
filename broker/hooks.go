package broker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"millrace/auth"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// hooks is where the MQTT library asks us. Identity, refusals and limits are decided here; no hook ever sees a message.
type hooks struct {
	mqtt.HookBase
	b *Broker
}

// newLibrary makes the library's server: no listeners, no inline client, no $SYS, no expiry, no aliases of its own.
func newLibrary(b *Broker) (*mqtt.Server, error) {
	l := &b.o.Limits
	caps := mqtt.NewDefaultServerCapabilities()
	caps.MaximumPacketSize = uint32(l.MaxPacketSize)
	caps.MaximumClientWritesPending = 1
	caps.MaximumMessageExpiryInterval = 0
	caps.MaximumSessionExpiryInterval = math.MaxUint32 // ours is held to and announced in OnPacketEncode
	caps.ReceiveMaximum = uint16(l.ReceiveMaximum)
	caps.TopicAliasMaximum = 0 // it never sees a PUBLISH; ours is announced in OnPacketEncode
	caps.Compatibilities.NoInheritedPropertiesOnAck = true
	s := mqtt.New(&mqtt.Options{Capabilities: caps, SysTopicResendInterval: 1 << 30, ClientNetReadBufferSize: 256,
		Logger: slog.New(errorsOnly{b.log})})
	return s, s.AddHook(&hooks{b: b}, nil)
}

// ID names the hook to the library.
func (h *hooks) ID() string { return "millrace" }

// Provides lists the calls the library makes.
func (h *hooks) Provides(call byte) bool {
	switch call {
	case mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnACLCheck, mqtt.OnSessionEstablish, mqtt.OnSessionEstablished,
		mqtt.OnPacketEncode, mqtt.OnSubscribe, mqtt.OnSubscribed, mqtt.OnUnsubscribed, mqtt.OnPublish:
		return true
	}
	return false
}

// refusals in words of MQTT 5; CONNACK codes of 3.1.1 are found from them in OnPacketEncode.
var (
	refusedMethod   = packets.ErrBadAuthenticationMethod
	refusedPassword = packets.ErrBadUsernameOrPassword
	refusedPolicy   = packets.ErrNotAuthorized
	refusedBusy     = packets.ErrServerBusy
	refusedClientID = packets.Code{Code: codeClientID, Reason: "the client identifier is in use by another API client; choose another one"}
	refusedSessions = packets.Code{Code: codeQuota, Reason: "too many sessions wait for their clients; connect with a session expiry of 0"}
	refusedStopping = packets.ErrServerShuttingDown
	refusedBanned   = packets.Code{Code: codeBanned, Reason: "too many failures within a minute; try again in a minute"}
)

// OnConnect decides everything that can refuse a client. The library sends no CONNACK for an error from here, so it is
// sent first.
func (h *hooks) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	c := cl.Net.Conn.(*conn)
	c.client, c.version = cl, cl.Properties.ProtocolVersion
	code, ok := h.b.admit(c, cl, &pk)
	if !ok {
		h.b.atDoors.refuse(code.Code)
		_ = h.b.library.SendConnack(cl, code, false, nil)
		return code
	}
	cl.Properties.Will = mqtt.Will{}
	h.b.imposeKeepAlive(cl)
	return nil
}

// imposeKeepAlive shortens the keep-alive where the client can be told so.
func (b *Broker) imposeKeepAlive(cl *mqtt.Client) {
	most := min(b.o.ServerKeepAlive/time.Second, 65535)
	if asked := cl.State.Keepalive; most > 0 && cl.Properties.ProtocolVersion == 5 && (asked == 0 || time.Duration(asked) > most) {
		cl.State.Keepalive, cl.State.ServerKeepalive = uint16(most), true
	}
}

func (b *Broker) admit(c *conn, cl *mqtt.Client, pk *packets.Packet) (code packets.Code, ok bool) {
	if cl.Properties.Props.AuthenticationMethod != "" {
		return refusedMethod, false
	}
	principal, code, ok := b.signIn(c, pk)
	if !ok {
		b.log.Debug("sign-in refused", "client", string(pk.Connect.Username), "remote", c.raw.RemoteAddr().String())
		return code, false
	}
	if principal.Policy() == nil {
		return refusedPolicy, false
	}
	if b.limits.flapping.banned(tallyKey{principal.ID(), cl.ID}, b.now()) {
		return refusedBanned, false
	}
	// Before the claim and again under it: one who is to be refused must not hold the identifier while its owner comes back.
	foreign := func() bool { owner := b.ownerOf(cl.ID); return owner != "" && owner != principal.ID() }
	if foreign() {
		return refusedClientID, false
	}
	if code, ok = b.takeClaim(c, cl.ID, principal.ID()); !ok {
		return code, false
	}
	if foreign() {
		return refusedClientID, false
	}
	props := &cl.Properties.Props
	c.principal = principal
	if code, ok = c.refuseWill(); !ok {
		return code, false
	}
	c.source = b.in.Source(principal.ID())
	c.maxPacket, c.aliasMaximum = props.MaximumPacketSize, pk.Properties.TopicAliasMaximum // the library cuts its own copy
	c.problem = !props.RequestProblemInfoFlag || props.RequestProblemInfo != 0
	window := defaultWindow
	if props.ReceiveMaximum > 0 {
		window = min(int(props.ReceiveMaximum), maxWindow)
	}
	c.expiry = b.expiryOf(cl, pk)
	var err error
	if c.present, err = b.begin(c.ctx, c, pk.Connect.Clean, window, c.expiry); err != nil {
		if errors.Is(err, errTooManySessions) {
			return refusedSessions, false
		}
		b.log.Warn("a session could not be kept; the client is told to come back", "client", principal.ID(), "mqtt_id", cl.ID, "error", err)
		return refusedBusy, false
	}
	c.session.leaveWill(c.will)
	return packets.Code{}, true
}

// expiryOf is how many seconds the session outlives its connection: what the client asks for, at most maxSessionExpiry.
func (b *Broker) expiryOf(cl *mqtt.Client, pk *packets.Packet) uint32 {
	most := uint32(b.o.Limits.MaxSessionExpiry / time.Second)
	if c, ok := cl.Net.Conn.(*conn); ok && c.principal.Role() != "" { // a person looks; nothing is kept for when he does not
		most = 0
	}
	switch {
	case cl.Properties.ProtocolVersion < 5 && !pk.Connect.Clean:
		return most
	case cl.Properties.ProtocolVersion < 5:
		return 0
	}
	return min(cl.Properties.Props.SessionExpiryInterval, most)
}

// ownerOf is the API client that a session belongs to, "" when there is none.
func (b *Broker) ownerOf(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		return s.owner
	}
	return ""
}

func (b *Broker) signIn(c *conn, pk *packets.Packet) (p *auth.Principal, refusal packets.Code, ok bool) {
	if c.certified {
		return b.certifiedSignIn(c, pk.Connect.Username)
	}
	key := tallyKey{sourceOf(c.raw.RemoteAddr().String()), string(pk.Connect.Username)}
	if key.id == "" {
		key.id = pk.Connect.ClientIdentifier
	}
	if b.limits.signIn.banned(key, b.now()) {
		return nil, refusedBanned, false
	}
	p, until, ok := b.users.AdmitFrom(c.raw.RemoteAddr().String(), string(pk.Connect.Username), pk.Connect.Password)
	if !ok {
		b.noteFailure(key)
	} else if !until.IsZero() {
		c.until = until.UnixNano()
	}
	return p, refusedPassword, ok
}

// OnConnectAuthenticate has nothing left to decide.
func (h *hooks) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

// OnSessionEstablish comes before the CONNACK: from here on the session can be found.
func (h *hooks) OnSessionEstablish(cl *mqtt.Client, _ packets.Packet) {
	h.b.enter(cl.Net.Conn.(*conn).session)
}

// OnPacketEncode puts our limits into the CONNACK, and the return codes of 3.1.1 where the library would send those of 5.
// The UNSUBACK gets our codes: the library says success for a filter that others only pass through on their way down.
func (h *hooks) OnPacketEncode(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	switch pk.FixedHeader.Type {
	case packets.Unsuback:
		if c, ok := cl.Net.Conn.(*conn); ok && len(c.refusals) == len(pk.ReasonCodes) {
			copy(pk.ReasonCodes, c.refusals)
		}
		fallthrough
	case packets.Suback:
		pk.Properties.User = nil // the library echoes those of the request [MQTT-3.9.2-2] [MQTT-3.11.2-2]
		return pk
	case packets.Connack:
	default:
		return pk
	}
	if pk.ReasonCode != 0 {
		pk.Properties = packets.Properties{ReasonString: pk.Properties.ReasonString} // limits are for those that are let in
		if cl.Properties.ProtocolVersion < 5 {
			pk.ReasonCode = connackV3(pk.ReasonCode)
		}
		return pk
	}
	c := cl.Net.Conn.(*conn)
	pk.SessionPresent = c.present
	if cl.Properties.ProtocolVersion == 5 && c.expiry != cl.Properties.Props.SessionExpiryInterval { // the client uses this one instead
		pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = c.expiry, true
	}
	pk.Properties.MaximumPacketSize = uint32(h.b.o.Limits.MaxPacketSize)
	pk.Properties.TopicAliasMaximum = topicAliasMaximum
	if cl.Properties.Props.RequestResponseInfo == 1 { // the library leaves it out where it was not asked for [MQTT-3.1.2-28]
		pk.Properties.ResponseInfo = c.responseInformation()
	}
	return pk
}

// connackV3 maps an MQTT 5 CONNACK code to a return code of MQTT 3.1.1.
func connackV3(code byte) byte {
	switch code {
	case codeVersion:
		return 1
	case codeClientID, codeUnspecified: // the library says 0x80 to an empty identifier without clean session
		return 2
	case codeBusy, codeShuttingDown, codeConnectRate, codeQuota:
		return 3
	}
	if code < 0x80 {
		return code
	}
	return 5
}

// OnSessionEstablished comes after the CONNACK.
func (h *hooks) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	h.b.library.Clients.Delete(cl.ID) // without its map the library takes nobody over and expires nobody
	c := cl.Net.Conn.(*conn)
	if k := cl.State.Keepalive; k > 0 {
		c.keepAlive.Store(int64(k) * 1500 * 1e6) // [MQTT-3.1.2-22]
	}
	c.established = true
	c.out.patient()
	c.live.Store(true)
	c.out.wake()
}

// OnACLCheck has nothing left to decide.
func (h *hooks) OnACLCheck(*mqtt.Client, string, bool) bool { return true }

// OnSubscribe decides about each filter and hides all of them from the library, whose own tree would take ten times the
// memory of ours, in time that grows with the square of a filter's length, and answers nobody.
func (h *hooks) OnSubscribe(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	c := cl.Net.Conn.(*conn)
	c.refusals, c.levels = c.refusals[:0], c.session.filterLevels()
	c.asked = slices.Clone(pk.Filters)
	for i := range pk.Filters {
		c.refusals = append(c.refusals, c.refuseFilter(pk.Filters[i].Filter))
		pk.Filters[i].Filter = ""
	}
	return pk
}

// OnSubscribed comes before the SUBACK, whose codes it may still set.
func (h *hooks) OnSubscribed(cl *mqtt.Client, _ packets.Packet, codes []byte) {
	c := cl.Net.Conn.(*conn)
	var subs []*subscription
	defer func() { c.asked = nil }()
	for i := range c.asked {
		f := &c.asked[i]
		codes[i] = f.Qos
		switch {
		case c.refusals[i] != 0 && c.version < 5:
			codes[i] = codeUnspecified
		case c.refusals[i] != 0:
			codes[i] = c.refusals[i]
		default:
			subs = append(subs, &subscription{session: c.session, filter: f.Filter, qos: codes[i], noLocal: f.NoLocal,
				retainAsPublished: f.RetainAsPublished, id: f.Identifier, handling: f.RetainHandling})
		}
	}
	if c.keep(subs) {
		return
	}
	for i := range codes {
		if codes[i] < 0x80 {
			codes[i] = codeUnspecified
		}
	}
}

// OnUnsubscribed comes before the UNSUBACK; the library also calls it when it cleans up, which is not for us.
func (h *hooks) OnUnsubscribed(cl *mqtt.Client, pk packets.Packet) {
	c := cl.Net.Conn.(*conn)
	if c.handed != typeUnsubscribe {
		return
	}
	filters := make([]string, len(pk.Filters))
	for i := range pk.Filters {
		filters[i] = pk.Filters[i].Filter
	}
	c.unsubscribe(filters)
}

// OnPublish must never be reached: messages go another way. What comes all the same is refused and counted, with the one
// answer that makes the library neither acknowledge nor deliver it.
func (h *hooks) OnPublish(_ *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	h.b.metrics.leaks.Add(1)
	return pk, packets.ErrRejectPacket
}

// errorsOnly passes on the library's errors without their attributes, which can hold whole packets.
type errorsOnly struct{ log *slog.Logger }

func (e errorsOnly) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (e errorsOnly) Handle(ctx context.Context, r slog.Record) error {
	e.log.LogAttrs(ctx, r.Level, "mqtt library", slog.String("message", r.Message))
	return nil
}

func (e errorsOnly) WithAttrs([]slog.Attr) slog.Handler { return e }
func (e errorsOnly) WithGroup(string) slog.Handler      { return e }
