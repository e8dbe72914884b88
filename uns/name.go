package uns

// Place says where a topic string leads.
type Place uint8

// The places.
const (
	// Ordinary is not below the namespace: plain MQTT.
	Ordinary Place = iota
	// Value is mHv1.0/<ws>/<path> or the client's own inbox.
	Value
	// ForeignInbox is another client's inbox: never permitted.
	ForeignInbox
	// VerdictTopic is mHv1.0/<ws>/_verdict/<client>/…: Path is the rest from _verdict on, Client the owner.
	VerdictTopic
	// Reserved has a first level _… or $…: nobody publishes there.
	Reserved
	// Invalid is topic_invalid: Fault says why.
	Invalid
)

// Name is a parsed topic. Its strings are parts of the topic that was given.
type Name struct {
	Place     Place
	Workspace string
	Path      string
	Client    string // owner of an inbox or verdict topic
	// Fault is set for ForeignInbox, Reserved and Invalid.
	Fault string
}

// The first levels that the box keeps for itself.
const (
	ingressLevel = "_ingress"
	verdictLevel = "_verdict"
)
