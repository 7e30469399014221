// Package history lets processes work on the same few keys of a store at the same time, through mounts and the command line, records what each
// of them did and saw, and checks afterwards that one after another could have done it too: that the store is linearizable.
//
// All keys are one object with one state. So it is checked as well that a rename moves a value, that a listing, a snapshot and a transaction
// see all keys at one moment, and that what is published together is there together.
//
// A value is a row of pieces that prove themselves (see Piece): whoever reads it knows who wrote what of it, or that it is torn.
package history
