package nodes

import (
	"fmt"
	"strconv"

	"millrace/pipeline/node"
)

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func index(at string, i int) string { return at + "[" + strconv.Itoa(i) + "]" }

func faultOf(field, code, format string, a ...any) node.Fault {
	return node.Fault{Field: field, Code: code, Message: fmt.Sprintf(format, a...), Severity: node.SeverityError}
}

func scriptFault(field string, err error) node.Fault {
	return faultOf(field, node.CodeScript, "%v", err)
}
