// Package release holds the version of tilework.
package release

// Version is the version of tilework: the newest one in CHANGELOG.md.
const Version = "0.1.0"
