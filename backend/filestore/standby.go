package filestore

import (
	"fmt"
	"time"
)

// besideHEAD returns what durable, the spares and the snapshots cannot be beside HEAD. Others may be writing to them: what is wrong for a moment is not.
func (s *Store) besideHEAD() (found []Finding, err error) {
	settled := false
	for range 20 {
		p, err := s.pinNewest()
		if err != nil {
			return nil, err
		}
		if found, err = s.standby(p); err == nil {
			settled, err = s.isHead(p)
		}
		s.unpin(p)
		if err != nil || settled && len(found) == 0 {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	if !settled {
		return nil, nil
	}
	return found, nil
}

// standby returns what durable, the spares and the snapshots cannot be as long as p is HEAD and the machine was not started anew.
func (s *Store) standby(p *pin) (found []Finding, err error) {
	d := s.readDurable()
	if p.h.boot != s.boot {
		return nil, nil
	}
	if d == (durable{}) && s.durf != nil {
		found = append(found, Finding{Path: "durable", Reason: "checksum mismatch"})
	}
	cs, err := s.candidates()
	if err != nil {
		return nil, err
	}
	seq, who := d.seq, "durable" // the newest generation that is known to have been HEAD
	kept := d.seq == 0 || d.seq >= p.h.seq
	for _, c := range cs {
		if c.h == nil || c.name == "HEAD" {
			continue
		}
		// A commit that was cut short has left the number that comes next, or that is being made.
		if c.h.seq > max(seq, p.h.seq+1) {
			seq, who = c.h.seq, c.name
		}
		kept = kept || c.h.seq == d.seq
	}
	names, _, err := s.snapshotNames()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := s.openRegular(s.namedPath(name))
		if err != nil {
			continue
		}
		if n, err := readNamed(f); err == nil && n.seq > seq {
			seq, who = n.seq, s.relative(s.namedPath(name))
		}
		f.Close()
	}
	if seq > p.h.seq {
		found = append(found, Finding{Path: "HEAD", Offset: offSeq, Reason: fmt.Sprintf("an older copy: its sequence number is %d, %s knows of %d", p.h.seq, who, seq)})
	}
	if !kept {
		found = append(found, Finding{Path: "durable", Reason: fmt.Sprintf("sequence number %d is on stable storage, but none of the spares is whole and has it", d.seq)})
	}
	return found, nil
}
