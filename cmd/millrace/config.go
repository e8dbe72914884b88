package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/broker"
	"millrace/historian"
	"millrace/uns"
	"millrace/web"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// Config is config.yaml: a section is a folder, and each folder owns the options of its section.
type Config struct {
	Data string `koanf:"data"`
	Log  struct {
		Level  string `koanf:"level"`
		Format string `koanf:"format"`
	} `koanf:"log"`
	Broker    broker.Options    `koanf:"broker"`
	Historian historian.Options `koanf:"historian"`
	UNS       uns.Options       `koanf:"uns"`
	Web       web.Options       `koanf:"web"`

	// source says where each key came from: default, FILE:LINE, the name of a variable, or a flag.
	source map[string]string
}

func defaultConfig() Config {
	c := Config{Data: "./data", Broker: broker.DefaultOptions(), Historian: historian.DefaultOptions(),
		UNS: uns.DefaultOptions(), Web: web.DefaultOptions(), source: map[string]string{}}
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

// setting is one key with its value, in the order of the file.
type setting struct {
	path  string
	value reflect.Value
}

func (c *Config) settings() []setting {
	var list []setting
	var walk func(v reflect.Value, prefix string)
	walk = func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("koanf")
			if name == "" || name == "-" {
				continue
			}
			if f := v.Field(i); f.Kind() == reflect.Struct {
				walk(f, prefix+name+".")
			} else {
				list = append(list, setting{prefix + name, f})
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	return list
}

// text gives a value as config.yaml would write it. Every int64 among the options is a size in bytes.
func (s setting) text() string {
	switch v := s.value.Interface().(type) {
	case time.Duration:
		return formatDuration(v)
	case int64:
		return formatSize(v)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case string:
		if v == "" {
			return `""`
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

func envName(path string) string {
	return "MILLRACE_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// envNotKeys are variables with our prefix that are not settings.
var envNotKeys = []string{"MILLRACE_ADMIN_PASSWORD", "MILLRACE_LONG"}

// loadConfig reads the settings in the order default, file, environment, flag; the later wins. An empty file
// name means ./config.yaml if there is one. The error lists every fault, a line each.
func loadConfig(file string, environ []string, flags map[string]string) (Config, error) {
	c := defaultConfig()
	known := map[string]setting{}
	for _, s := range c.settings() {
		known[s.path] = s
		c.source[s.path] = "default"
	}
	var faults []error
	k := koanf.New(".")
	layer := func(values map[string]any, source func(path string) string) {
		for path, v := range values {
			at := source(path)
			if with, later := laterWith(path); later {
				faults = append(faults, fmt.Errorf("%s: %s is not available in this version; it comes with %s: take the key out", at, path, with))
				continue
			}
			s, ok := known[path]
			if !ok {
				faults = append(faults, fmt.Errorf("%s: unknown key %s%s", at, path, nearest(path, known)))
				continue
			}
			if err := try(s, path, v); err != nil {
				faults = append(faults, fmt.Errorf("%s: %s: %w", at, path, err))
				continue
			}
			if err := k.Load(confmap.Provider(map[string]any{path: v}, "."), nil); err != nil {
				faults = append(faults, fmt.Errorf("%s: %s: %w", at, path, err))
				continue
			}
			c.source[path] = at
		}
	}

	if file == "" {
		if _, err := os.Stat("config.yaml"); err == nil {
			file = "config.yaml"
		}
	}
	if file != "" {
		values, lines, err := readYAML(file)
		if err != nil {
			return c, err
		}
		layer(values, func(path string) string { return fmt.Sprintf("%s:%d", file, lines[path]) })
	}
	env := map[string]any{}
	byName := map[string]string{}
	for path := range known {
		byName[envName(path)] = path
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "MILLRACE_") || slices.Contains(envNotKeys, name) {
			continue
		}
		if path, ok := byName[name]; ok {
			env[path] = value
		} else {
			faults = append(faults, fmt.Errorf("environment: unknown variable %s; a key's variable is MILLRACE_ and its path in capitals with _ for the dots", name))
		}
	}
	layer(env, func(path string) string { return "environment " + envName(path) })
	given := map[string]any{}
	for path, v := range flags {
		given[path] = v
	}
	layer(given, func(path string) string { return "flag --" + path })

	if len(faults) == 0 {
		if err := decode(k.Raw(), &c); err != nil {
			faults = append(faults, err)
		}
		faults = append(faults, c.validate())
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return c, errors.Join(faults...)
}

// try decodes one value alone, so that a fault can be told with its line.
func try(s setting, path string, v any) error {
	target := reflect.New(s.value.Type())
	if err := decode(v, target.Interface()); err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner
		}
		text := err.Error()
		if i := strings.LastIndex(text, "quantity: "); i >= 0 {
			return errors.New(text[i+len("quantity: "):])
		}
		return fmt.Errorf("%v does not fit: a %s is wanted", v, kindName(s.value.Type()))
	}
	return nil
}

func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[broker.PerMinute]():
		return "number a minute"
	case t.Kind() == reflect.Int64:
		return "size"
	case t.Kind() == reflect.Int:
		return "whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "list"
	}
	return "text"
}

func decode(from, to any) error {
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{TagName: "koanf", Result: to, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(decodeQuantity)})
	if err != nil {
		return err
	}
	return d.Decode(from)
}

// decodeQuantity turns what YAML or the environment holds into the type of an option.
func decodeQuantity(from, to reflect.Type, v any) (any, error) {
	quantity := func(v any, err error) (any, error) {
		if err != nil {
			return nil, fmt.Errorf("quantity: %w", err)
		}
		return v, nil
	}
	text, isText := v.(string)
	switch {
	case to == reflect.TypeFor[time.Duration]():
		if !isText {
			return nil, fmt.Errorf("quantity: %v has no unit; write 500ms, 5s, 1h30m or 7d", v)
		}
		return quantity(parseDuration(text))
	case to == reflect.TypeFor[broker.PerMinute]():
		return quantity(parsePerMinute(fmt.Sprint(v)))
	case to.Kind() == reflect.Int64:
		return quantity(parseSize(fmt.Sprint(v)))
	case to.Kind() == reflect.Int && isText:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("quantity: %q is not a whole number", text)
		}
		return n, nil
	case to.Kind() == reflect.Bool && isText:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("quantity: %q is neither true nor false", text)
		}
		return b, nil
	case to.Kind() == reflect.Slice && isText:
		list := strings.Split(strings.Trim(text, "[]"), ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list, nil
	case to.Kind() == reflect.String && !isText:
		switch v.(type) {
		case map[string]any, []any, nil:
			return nil, fmt.Errorf("quantity: %v does not fit: text is wanted", v)
		}
		return fmt.Sprint(v), nil
	}
	return v, nil
}

// nearest proposes the key that was probably meant.
func nearest(path string, known map[string]setting) string {
	last := path[strings.LastIndexByte(path, '.')+1:]
	var hits []string
	for k := range known {
		if strings.EqualFold(k, path) || strings.EqualFold(k[strings.LastIndexByte(k, '.')+1:], last) {
			hits = append(hits, k)
		}
	}
	if len(hits) == 0 {
		return "; `millrace config print` lists every key"
	}
	slices.Sort(hits)
	return "; did you mean " + hits[0] + "?"
}

func (c *Config) validate() error {
	var faults []error
	if c.Data == "" {
		faults = append(faults, errors.New("data: empty; name a folder"))
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		faults = append(faults, fmt.Errorf("log.level: %q is none of debug, info, warn, error", c.Log.Level))
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		faults = append(faults, fmt.Errorf("log.format: %q is neither text nor json", c.Log.Format))
	}
	return errors.Join(append(faults, c.Broker.Validate(), c.Historian.Validate(), c.UNS.Validate(), c.Web.Validate())...)
}
