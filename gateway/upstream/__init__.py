"""Transports to engines: one contract, two implementations."""
