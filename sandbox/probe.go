package sandbox

// Feature is one thing that the tiers need of a host, and how it was tested.
type Feature struct {
	Name   string `json:"name"`
	Tested string `json:"tested"` // how
	Found  string `json:"found"`  // what the test said
	OK     bool   `json:"ok"`
	Needed string `json:"needed,omitempty"` // the tier that is lost without it; "" for none
	Repair string `json:"repair,omitempty"` // the command that brings it
}
