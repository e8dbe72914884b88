package script

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/dop251/goja"

	"millrace/pipeline/value"
)

// checkSize refuses a value that a native would make a text of more than maxText characters of, or more than maxList parts of:
// lists that hold one list many times are small until they are written out.
func (m *machine) checkSize(call goja.FunctionCall) goja.Value {
	c := measure{m: m}
	c.add(call.Argument(0), 0)
	return goja.Undefined()
}

var (
	exactType   = reflect.TypeFor[*exact]()
	objectType  = reflect.TypeFor[*object]()
	listType    = reflect.TypeFor[*list]()
	promiseType = reflect.TypeFor[*goja.Promise]()
	timeType    = reflect.TypeFor[time.Time]()
)

// ours is what stands behind an object that came from us, or a time; nil for all else, which Export would copy as a whole.
func ours(o *goja.Object) any {
	switch o.ExportType() {
	case exactType, objectType, listType, timeType:
		return o.Export()
	}
	return nil
}

type measure struct {
	m     *machine
	parts int
	text  int
}

func (c *measure) fail(format string, a ...any) {
	panic(c.m.r.NewTypeError(fmt.Sprintf(format, a...)))
}

func (c *measure) add(v goja.Value, depth int) {
	if c.parts++; c.parts > maxList {
		c.fail("a value of more than %d parts", maxList)
	}
	if s, ok := v.(goja.String); ok {
		if c.text += s.Length(); c.text > maxText {
			c.fail("a text of more than %d characters", maxText)
		}
		return
	}
	o, ok := v.(*goja.Object)
	if !ok || depth > value.MaxDepth { // the native itself refuses what holds itself
		return
	}
	switch x := ours(o).(type) {
	case *object:
		if x.fields == nil {
			c.text += x.was.Size()
			return
		}
	case *list:
		if !x.touched {
			c.text += x.was.Size()
			return
		}
	}
	if o.ClassName() == "Array" {
		n := o.Get("length").ToInteger()
		if n > maxList {
			c.fail("a list of %d items: at most %d are allowed", n, maxList)
		}
		for i := range n {
			c.add(o.Get(strconv.FormatInt(i, 10)), depth+1)
		}
		return
	}
	if _, function := goja.AssertFunction(o); function {
		return
	}
	for _, k := range o.Keys() {
		c.text += len(k)
		c.add(o.Get(k), depth+1)
	}
}
