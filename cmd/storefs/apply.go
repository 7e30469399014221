package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/storefs/storefs/backend"
)

func newApply() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "apply [--json] STORE",
		Short: "Put and remove many keys in one commit",
		Long: `Read changes from standard input, all of them, and make them in one commit, or none. Each is a record, in the format
of cdbmake(1), in which keys and values may hold any bytes:

  +KEYLENGTH,VALUELENGTH:KEY->VALUE    and a line end: put VALUE under KEY
  -KEYLENGTH:KEY                       and a line end: remove KEY, which must be there

An empty line ends the input; without it nothing is changed, so that a program that died half-way changes nothing.

With --json each line is an object: {"put": KEY, "value": VALUE} or {"rm": KEY}, or with put_base64, value_base64, rm_base64 for bytes that
are not UTF-8.

Later records see what earlier ones did. Missing directories are made.`,
		Args: argCount(1, 1),
		RunE: operation(func(cmd *cobra.Command, args []string) error {
			return withStore(cmd, args[0], func(st backend.Store) error { return apply(cmd, st, os.Stdin, asJSON) })
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "read a JSON object a line")
	return cmd
}

// record is one change; a nil value removes the key.
type record struct {
	key, path string
	value     backend.Stage
}

func apply(cmd *cobra.Command, st backend.Store, in io.Reader, asJSON bool) error {
	sp, err := newSpool(st)
	if err != nil {
		return err
	}
	defer sp.Close()
	r, next := bufio.NewReaderSize(in, copyBuffer), readRecord
	if asJSON {
		next = readJSON
	}
	var all []record
	for {
		rec, err := next(r, sp)
		if err == io.EOF {
			break
		}
		if err == nil {
			rec.path, err = keyPath(rec.key)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", len(all)+1, err)
		}
		all = append(all, rec)
	}
	attr := ownAttr(0o666)
	return commitEdit(cmd.Context(), st, func(e *edit) error {
		for i, rec := range all {
			var err error
			if rec.value == nil {
				err = e.remove(rec.path)
			} else {
				err = e.put(rec.path, rec.value, attr, backend.AttrChange{})
			}
			if err != nil {
				return fmt.Errorf("record %d: %w", i+1, keyError(rec.key, err))
			}
		}
		return nil
	})
}

// readRecord reads one record; io.EOF at the empty line, which must be the end.
func readRecord(r *bufio.Reader, sp *spool) (rec record, err error) {
	sign, err := r.ReadByte()
	if err != nil {
		return rec, endError(err)
	}
	switch sign {
	case '\n':
		if _, err := r.ReadByte(); err != io.EOF {
			return rec, errors.New("there is something after the empty line that ends the input")
		}
		return rec, io.EOF
	case '+', '-':
	default:
		return rec, fmt.Errorf("begins with %q, not with + or -", sign)
	}
	head, err := r.ReadSlice(':')
	if err != nil {
		return rec, endError(err)
	}
	klen, vlen, put := strings.Cut(strings.TrimSuffix(string(head), ":"), ",")
	n, err := strconv.ParseUint(klen, 10, 24)
	size := uint64(0)
	if err == nil && put {
		size, err = strconv.ParseUint(vlen, 10, 62)
	}
	if err != nil || put != (sign == '+') {
		return rec, fmt.Errorf("%q is not the length of a key%s", head, map[bool]string{true: ", a comma and the length of a value"}[sign == '+'])
	}
	key := make([]byte, n)
	if _, err := io.ReadFull(r, key); err != nil {
		return rec, endError(err)
	}
	rec.key = string(key)
	if put {
		if err := expect(r, "->"); err != nil {
			return rec, err
		}
		if rec.value, err = sp.add(r, int64(size)); err != nil {
			return rec, endError(err)
		}
	}
	return rec, expect(r, "\n")
}

func expect(r io.Reader, word string) error {
	b := make([]byte, len(word))
	if _, err := io.ReadFull(r, b); err != nil {
		return endError(err)
	}
	if string(b) != word {
		return fmt.Errorf("%q stands where %q should: a length is wrong", b, word)
	}
	return nil
}

func endError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the input ends without an empty line")
	}
	return err
}

// jsonRecord is a line of apply --json.
type jsonRecord struct {
	Put         *string `json:"put"`
	PutBase64   []byte  `json:"put_base64"`
	Rm          *string `json:"rm"`
	RmBase64    []byte  `json:"rm_base64"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64"`
}

func readJSON(r *bufio.Reader, sp *spool) (rec record, err error) {
	line, err := r.ReadBytes('\n')
	if len(line) == 0 {
		return rec, err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var j jsonRecord
	if err := d.Decode(&j); err != nil {
		return rec, fmt.Errorf("no JSON object of a change: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return rec, errors.New("more than one JSON object in a line")
	}
	put, nput := oneOf(j.Put, j.PutBase64)
	rm, nrm := oneOf(j.Rm, j.RmBase64)
	value, nvalue := oneOf(j.Value, j.ValueBase64)
	if nput+nrm != 1 || nvalue != nput {
		return rec, errors.New("not one of put with value, and rm")
	}
	rec.key = put + rm
	if nput == 1 {
		rec.value, err = sp.add(strings.NewReader(value), int64(len(value)))
		return rec, err
	}
	return rec, nil
}

// oneOf returns what is given, as text or as bytes, and how many of the two are.
func oneOf(text *string, b []byte) (string, int) {
	switch {
	case text != nil && b != nil:
		return "", 2
	case text != nil:
		return *text, 1
	case b != nil:
		return string(b), 1
	}
	return "", 0
}
