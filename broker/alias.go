package broker

import "hash/maphash"

// aliases are the topic aliases that the client of one connection knows from us: numbers that stand for topics it gets
// often. A topic gets one the second time it is sent within a short while, so that a subscriber of ten thousand topics is
// not kept busy learning. When all are taken, every aliasPatience-th wish moves a hand on by one, and the alias it comes to is given
// away if it was not used since it was there: topics that come in turn, more than there are aliases, would else take them from
// each other before they are of use.
type aliases struct {
	most   int // of the client, and at most topicAliasMaximum
	by     map[string]uint16
	topics []string // by alias, from 1
	used   []bool   // since the hand was there
	hand   int
	wishes int // of topics that have none, while all are taken
	seed   maphash.Seed
	keep   bool        // the next slot that is wanted stays as it is
	once   [256]uint32 // topics that were sent lately, by the low bits of their hash
}

// minAliased is the length from which a topic is worth one: the property takes three octets.
const minAliased = 6

// aliasPatience is how many wishes move the hand.
const aliasPatience = 16

func newAliases(most uint16) *aliases {
	if most == 0 {
		return nil
	}
	return &aliases{most: int(min(most, topicAliasMaximum)), by: map[string]uint16{}, seed: maphash.MakeSeed()}
}

// choose gives the alias of a topic that is to be sent; 0: none. known: the client has it, the topic may be left out.
// Otherwise it learns it with this message, and learned is to be called once that is sure to be sent.
func (a *aliases) choose(topic string) (alias uint16, known bool) {
	if len(topic) < minAliased {
		return 0, false
	}
	if alias, known = a.by[topic]; known {
		a.used[alias-1] = true
		return alias, true
	}
	h := maphash.String(a.seed, topic)
	if slot := &a.once[h%uint64(len(a.once))]; *slot != uint32(h>>32) {
		if a.keep = !a.keep; !a.keep { // or two topics of one slot would turn each other out for ever
			*slot = uint32(h >> 32)
		}
		return 0, false
	}
	if len(a.topics) < a.most {
		return uint16(len(a.topics) + 1), false
	}
	if a.wishes++; a.wishes%aliasPatience != 0 {
		return 0, false
	}
	a.hand = (a.hand + 1) % a.most
	if a.used[a.hand] {
		a.used[a.hand] = false
		return 0, false
	}
	return uint16(a.hand + 1), false
}

// learned notes that the client was told what alias stands for.
func (a *aliases) learned(topic string, alias uint16) {
	if int(alias) > len(a.topics) {
		a.topics, a.used = append(a.topics, ""), append(a.used, false)
	} else {
		delete(a.by, a.topics[alias-1])
	}
	a.topics[alias-1] = topic
	a.by[topic] = alias
}
