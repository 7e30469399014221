//go:build race

package filestore

const raceDetector = true
