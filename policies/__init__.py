"""The decisions of Weir: pure functions of frozen snapshots. No socket, no clock, no log, no count."""
