"""A referee for routing policies: LLM engines replaying real traces in virtual time."""
