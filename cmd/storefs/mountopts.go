package main

import (
	"fmt"
	"math"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/storefs/storefs/backend/filestore"
)

// mountOptions is what -o says.
type mountOptions struct {
	readOnly, allowOther, noXattr, strict, noCreate bool
	uid, gid, umask                                 *uint32
	sync                                            filestore.SyncMode
	interval, lockTimeout                           time.Duration // 0 is the store's default
	maxValue, maxStore                              int64         // 0 is no limit
	fsName                                          string        // "" is the store's path
	notify                                          bool          // tell systemd; no option, but the way of running
	extra                                           []string      // for the kernel or fusermount3, as they are
}

// passedOn are the options of fuse(8) that mean nothing to storefs itself.
var passedOn = map[string]bool{
	"suid": true, "nosuid": true, "dev": true, "nodev": true, "exec": true, "noexec": true,
	"atime": true, "noatime": true, "default_permissions": true,
}

// parseMountOptions reads the values of all -o flags. Later ones win. Every error is a usage error that names the option.
func parseMountOptions(flags []string) (mountOptions, error) {
	var o mountOptions
	for _, flag := range flags {
		for word := range strings.SplitSeq(flag, ",") {
			if word == "" {
				continue
			}
			name, value, hasValue := strings.Cut(word, "=")
			if err := o.set(name, value, hasValue); err != nil {
				return o, usagef("option %s: %w", word, err)
			}
		}
	}
	return o, nil
}

func (o *mountOptions) set(name, value string, hasValue bool) error {
	if parse, ok := valueOptions[name]; ok {
		if value == "" {
			return fmt.Errorf("needs a value: %s=", name)
		}
		return parse(o, value)
	}
	if hasValue && (flagOptions[name] != nil || passedOn[name]) {
		return fmt.Errorf("takes no value")
	}
	switch set := flagOptions[name]; {
	case set != nil:
		set(o)
	case passedOn[name]:
		o.extra = append(o.extra, name)
	case name == "auto_unmount":
		return fmt.Errorf("not supported (storefs mount takes a mountpoint over that a killed daemon left)")
	case name == "subtype":
		return fmt.Errorf("not supported (it is always storefs)")
	default:
		return fmt.Errorf("unknown (storefs mount --help lists them)")
	}
	return nil
}

var flagOptions = map[string]func(*mountOptions){
	"ro":          func(o *mountOptions) { o.readOnly = true },
	"rw":          func(o *mountOptions) { o.readOnly = false },
	"allow_other": func(o *mountOptions) { o.allowOther = true },
	"noxattr":     func(o *mountOptions) { o.noXattr = true },
	"strict":      func(o *mountOptions) { o.strict = true },
	"nocreate":    func(o *mountOptions) { o.noCreate = true },
}

var valueOptions = map[string]func(*mountOptions, string) error{
	"uid": func(o *mountOptions, v string) (err error) {
		o.uid, err = parseID(v, func() (string, error) {
			u, err := user.Lookup(v)
			if err != nil {
				return "", fmt.Errorf("no such user")
			}
			return u.Uid, nil
		})
		return err
	},
	"gid": func(o *mountOptions, v string) (err error) {
		o.gid, err = parseID(v, func() (string, error) {
			g, err := user.LookupGroup(v)
			if err != nil {
				return "", fmt.Errorf("no such group")
			}
			return g.Gid, nil
		})
		return err
	},
	"umask": func(o *mountOptions, v string) error {
		n, err := strconv.ParseUint(v, 8, 32)
		if err != nil || n > 0o777 {
			return fmt.Errorf("not an octal number up to 777")
		}
		mask := uint32(n)
		o.umask = &mask
		return nil
	},
	"sync":        func(o *mountOptions, v string) error { return o.setSync(v) },
	"locktimeout": func(o *mountOptions, v string) (err error) { o.lockTimeout, err = parseDuration(v); return err },
	"maxstore":    func(o *mountOptions, v string) (err error) { o.maxStore, err = parseSize(v); return err },
	"maxvalue":    func(o *mountOptions, v string) (err error) { o.maxValue, err = parseSize(v); return err },
	"fsname":      func(o *mountOptions, v string) error { o.fsName = v; return nil },
}

func (o *mountOptions) setSync(v string) (err error) {
	mode, interval, timed := strings.Cut(v, ":")
	o.interval = 0
	switch {
	case mode == "always" && !timed:
		o.sync = filestore.Always
	case mode == "never" && !timed:
		o.sync = filestore.Never
	case mode == "interval":
		o.sync = filestore.Interval
		if timed {
			o.interval, err = parseDuration(interval)
		}
	default:
		err = fmt.Errorf("not one of always, interval, interval:TIME, never")
	}
	return err
}

// parseID reads a number, or asks lookup for one.
func parseID(v string, lookup func() (string, error)) (*uint32, error) {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		if v, err = lookup(); err != nil {
			return nil, err
		}
		if n, err = strconv.ParseUint(v, 10, 32); err != nil {
			return nil, err
		}
	}
	if n == math.MaxUint32 { // chown(2): "leave as it is"
		return nil, fmt.Errorf("not a number of a user or group")
	}
	id := uint32(n)
	return &id, nil
}

// parseDuration reads what time.ParseDuration does, and a bare number as seconds. Not zero, not negative.
func parseDuration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil {
		d, err = time.ParseDuration(v + "s")
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("not a time such as 30s, 500ms, 2m")
	}
	return d, nil
}

// parseSize reads a number of bytes, with K, M, G or T for powers of 1024. Not zero: that would be no limit.
func parseSize(v string) (int64, error) {
	shift := 0
	if i := strings.IndexByte("KMGT", strings.ToUpper(v)[len(v)-1]); i >= 0 {
		shift, v = 10*(i+1), v[:len(v)-1]
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("not a number of bytes such as 1000, 64K, 10M, 1G")
	}
	return n << shift, nil
}
