"""The flight recorder: closed records, kept for those who ask why a request was slow."""
