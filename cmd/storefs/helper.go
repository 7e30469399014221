package main

import (
	"path/filepath"
	"strings"
)

// Exit statuses that mount(8) expects of a helper.
const (
	helperUsage  = 1
	helperFailed = 32
)

// isHelper says whether mount(8) calls us, as the helper for a file system of type storefs or fuse.storefs.
func isHelper(argv0 string) bool {
	name := filepath.Base(argv0)
	return name == "mount.storefs" || name == "mount.fuse.storefs"
}

// helperArgs returns the arguments of storefs mount for those of a mount helper (mount(8), "External helpers"):
//
//	STORE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
//
// fake is -f: everything but the mount.
func helperArgs(args []string) (mount []string, fake bool, err error) {
	var words []string
	sloppy := false
	var options []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case len(words) < 2 && (a == "" || a[0] != '-'):
			words = append(words, a)
		case a == "-o" || a == "-t" || a == "-N":
			if i++; i == len(args) {
				return nil, false, usagef("%s: needs a value", a)
			}
			if a == "-o" {
				options = append(options, strings.Split(args[i], ",")...)
			}
		case len(a) > 1 && strings.Trim(a[1:], "sfnv") == "" && a[0] == '-':
			sloppy = sloppy || strings.Contains(a, "s")
			fake = fake || strings.Contains(a, "f")
		default:
			return nil, false, usagef("%s: unexpected argument (STORE MOUNTPOINT -o OPTIONS)", a)
		}
	}
	if len(words) < 2 {
		return nil, false, usagef("too few arguments (STORE MOUNTPOINT -o OPTIONS)")
	}
	mount = []string{"mount"}
	for _, o := range options {
		if name, _, _ := strings.Cut(o, "="); forMount[name] || strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-") {
			continue
		}
		if _, err := parseMountOptions([]string{o}); err != nil {
			if sloppy {
				continue
			}
			return nil, false, err
		}
		mount = append(mount, "-o", o)
	}
	return append(mount, "--", words[0], words[1]), fake, nil
}

// forMount are the options of fstab(5) that are for mount(8) itself, or for who reads the file.
var forMount = map[string]bool{
	"defaults": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true, "user": true, "nouser": true, "users": true, "nousers": true,
	"owner": true, "noowner": true, "group": true, "nogroup": true, "comment": true, "relatime": true, "async": true,
}
